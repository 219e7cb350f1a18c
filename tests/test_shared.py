from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from fedgem.gaussian.covariances import Gaussians
from fedgem.gaussian.estep import e_step
from fedgem.gaussian.mixture import regularised
from fedgem.gaussian.shrinkage import log_prior
from fedgem.gaussian.statistics import Statistics
from fedgem.rows import Rows
from fedgem.shared import (
    SharedMixture,
    all_likelihoods,
    bayesian_information,
    cluster_moments,
    evidence,
    local_weights,
    merged,
    n_parameters,
    n_present,
    own_penalties,
    parts_for,
    pooled,
    updated,
)
from strategies import COVARIANCE_TYPES, covariances_of_type, seeds

OFFSETS = [0.0, 1e6]
SHRUNK = ["full", "diag", "spherical"]


def statistics_of(X, responsibilities, covariance_type, offset=0.0):
    """The statistics as they are defined, of rows that all lie `offset` farther out."""
    counts = responsibilities.sum(axis=0)
    means = responsibilities.T @ X / counts[:, None]
    steps = X[:, None] - means
    full = np.einsum("nk,nki,nkj->kij", responsibilities, steps, steps)
    covariances = {
        "full": full / counts[:, None, None],
        "tied": full.sum(axis=0)[None] / counts.sum(),
        "diag": np.einsum("kii->ki", full) / counts[:, None],
        "spherical": np.einsum("kii->k", full) / counts / X.shape[1],
        "identity": None,
    }[covariance_type]
    return Statistics(counts, means + offset, covariances)


def assert_same(found, expected):
    assert_allclose(found.counts, expected.counts)
    assert_allclose(found.means, expected.means, rtol=1e-13, atol=1e-9)
    if expected.covariances is None:
        assert found.covariances is None
    else:
        assert_allclose(found.covariances, expected.covariances, rtol=1e-6, atol=1e-8)


def joined(statistics):
    return Statistics(
        np.concatenate([s.counts for s in statistics]),
        np.concatenate([s.means for s in statistics]),
        None
        if statistics[0].covariances is None
        else np.concatenate(
            [np.repeat(s.covariances, len(s.counts) // len(s.covariances), 0) for s in statistics]
        ),
    )


def clients(rng, n_clients, n_features, n_components):
    rows = [rng.normal(size=(12, n_features)) * 3 for _ in range(n_clients)]
    return rows, [rng.dirichlet(np.ones(n_components), size=12) for _ in rows]


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("offset", OFFSETS)
@given(seed=seeds, n_clients=st.integers(1, 4), n_features=st.integers(1, 4))
def test_pooling_and_merging_are_exactly_additive(
    covariance_type, offset, seed, n_clients, n_features
):
    rng = np.random.default_rng(seed)
    rows, responsibilities = clients(rng, n_clients, n_features, 3)
    own = [
        statistics_of(X, r, covariance_type, offset)
        for X, r in zip(rows, responsibilities, strict=True)
    ]
    labels = np.append(np.arange(3), rng.integers(3, size=3 * n_clients - 3))
    counts = np.array([s.counts for s in own])
    by_client = np.zeros((n_clients, 3 * n_clients))
    for g in range(n_clients):
        by_client[g, 3 * g : 3 * g + 3] = counts[g]
    mixture = pooled(joined(own), labels, by_client, covariance_type)

    X = np.concatenate(rows)
    onehot = np.eye(3)[labels]
    together = np.concatenate(
        [r @ onehot[3 * g : 3 * g + 3] for g, r in enumerate(responsibilities)]
    )
    assert_same(mixture.statistics, statistics_of(X, together, covariance_type, offset))
    assert_allclose(mixture.local_counts, by_client @ onehot)
    assert np.isnan(mixture.log_likelihoods).all()

    clusters = np.array([1, 0, 1])
    fewer = merged(mixture, clusters, covariance_type)
    expected = statistics_of(X, together @ np.eye(2)[clusters], covariance_type, offset)
    assert_same(fewer.statistics, expected)
    assert_allclose(fewer.local_counts, mixture.local_counts @ np.eye(2)[clusters])
    assert_array_equal(fewer.cluster_of, [0, 1])
    assert fewer.age == 0


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("offset", OFFSETS)
@given(seed=seeds, n_clients=st.integers(1, 4), n_features=st.integers(1, 4))
def test_updates_are_exactly_additive(covariance_type, offset, seed, n_clients, n_features):
    rng = np.random.default_rng(seed)
    rows, responsibilities = clients(rng, n_clients, n_features, 3)
    weights = np.ones((n_clients, 3))
    if n_clients > 1:  # of the last part, the last client has none
        weights[-1, 2] = 0.0
        responsibilities[-1] = rng.dirichlet(np.ones(2), size=12)
    replies = [
        (g, statistics_of(X, r, covariance_type, offset), -float(g))
        for g, (X, r) in enumerate(zip(rows, responsibilities, strict=True))
    ]
    before = SharedMixture(
        Statistics(np.ones(3), offset + rng.normal(size=(3, n_features))),
        np.array([0, 1, 1]),
        np.ones((n_clients, 3)),
        np.full(n_clients, np.nan),
        age=4,
    )
    after = updated(before, weights, replies, covariance_type)
    if n_clients > 1:
        responsibilities[-1] = np.column_stack([responsibilities[-1], np.zeros(12)])
    every = np.concatenate(rows), np.concatenate(responsibilities)
    assert_same(after.statistics, statistics_of(*every, covariance_type, offset))
    assert_allclose(after.local_counts, [r.sum(axis=0) for r in responsibilities])
    assert_array_equal(after.log_likelihoods, -np.arange(n_clients))
    assert_array_equal(after.cluster_of, before.cluster_of)
    assert after.age == 5


def random_mixture(covariance_type, rng, n_clients=3, cluster_of=(0, 0, 1), n_features=2):
    n_parts = len(cluster_of)
    covariances = covariances_of_type(covariance_type, n_parts, n_features, rng)
    if covariance_type == "tied":
        covariances = covariances[None]
    counts = rng.uniform(5, 20, size=(n_clients, n_parts))
    means = 3 * rng.normal(size=(n_parts, n_features))
    some = Statistics(counts.sum(axis=0), means, covariances)
    return SharedMixture(some, np.array(cluster_of), counts, np.full(n_clients, np.nan))


def share(mixture, rows, covariance_type, n_local=None, present=None):
    """A round, as consensus.py and client.py make it."""
    floor = np.zeros(rows[0].shape[1])
    weights = local_weights(mixture, n_local)
    replies = []
    for g, part in enumerate(parts_for(mixture, weights, covariance_type, floor)):
        if present is None or g in present:
            components = Gaussians(part.means, part.covariances, covariance_type)
            found = e_step(Rows.from_array(rows[g]), components, np.log(part.weights))
            replies.append((g, *found))
    return updated(mixture, weights, replies, covariance_type)


def central_step(rows, weights, means, covariances, covariance_type):
    """A step of EM with all rows in one place, as the textbook has it."""
    n_features = len(means[0])
    log_densities = [
        np.column_stack(
            [
                multivariate_normal(m, S).logpdf(X).reshape(-1)
                for m, S in zip(means, covariances, strict=True)
            ]
        )
        for X in rows
    ]
    joint = [np.log(w) + p for w, p in zip(weights, log_densities, strict=True)]
    likelihoods = np.array([logsumexp(j, axis=1).sum() for j in joint])
    gamma = [np.exp(j - logsumexp(j, axis=1, keepdims=True)) for j in joint]
    counts = np.array([r.sum(axis=0) for r in gamma])
    X, R = np.concatenate(rows), np.concatenate(gamma)
    n = R.sum(axis=0)
    means = R.T @ X / n[:, None]
    S = np.array([(R[:, k, None] * (X - m)).T @ (X - m) / n[k] for k, m in enumerate(means)])
    if covariance_type == "identity":
        S = np.tile(np.eye(n_features), (len(n), 1, 1))
    elif covariance_type == "tied":
        S = np.tile(np.average(S, axis=0, weights=n), (len(n), 1, 1))
    else:
        W = np.average(S, axis=0, weights=n)
        if covariance_type == "full":
            few = n_features / (n.sum() + n_features)
            W = (1 - few) * W + few * np.diag(np.diag(W))
        S = np.array(
            [(c * s + n_features * W) / (c + n_features) for c, s in zip(n, S, strict=True)]
        )
        if covariance_type != "full":
            S = S * np.eye(n_features)
        if covariance_type == "spherical":
            S = np.array([np.trace(s) / n_features * np.eye(n_features) for s in S])
    # A row more for each component at each client: the mode under a Dirichlet prior.
    weights = (counts + 1) / (counts + 1).sum(axis=1, keepdims=True)
    return weights, means, S, likelihoods


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@settings(max_examples=20)
@given(seeds)
def test_rounds_are_central_em_where_nobody_is_restricted(covariance_type, seed):
    rng = np.random.default_rng(seed)
    rows = [2 * rng.normal(size=(n, 2)) for n in (30, 8, 17)]
    mixture = share(
        random_mixture(covariance_type, rng, cluster_of=(0, 1, 2)), rows, covariance_type
    )
    components = regularised(mixture.statistics, covariance_type, np.zeros(2))
    _, covariances = cluster_moments(components, mixture)
    central = local_weights(mixture, None), components.means, covariances
    for _ in range(4):
        *central, likelihoods = central_step(rows, *central, covariance_type)
        mixture = share(mixture, rows, covariance_type)
        assert_allclose(mixture.log_likelihoods, likelihoods, rtol=1e-8)
        assert_allclose(local_weights(mixture, None), central[0], rtol=1e-6)
        assert_allclose(mixture.statistics.means, central[1], rtol=1e-6, atol=1e-6)
        shapes = regularised(mixture.statistics, covariance_type, np.zeros(2))
        assert_allclose(cluster_moments(shapes, mixture)[1], central[2], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@settings(max_examples=20)
@given(seeds)
def test_rounds_do_not_lower_what_they_maximise(covariance_type, seed):
    """As in tests/gaussian/test_mixture.py, for clusters of several parts too.

    What a round maximises is the log-likelihood with a row more for each client's clusters, and
    with the shrinkage towards the covariance that is pooled after the round.
    """
    rng = np.random.default_rng(seed)
    rows = [3 * rng.normal(size=(n, 2)) for n in (30, 8, 17)]
    now = share(random_mixture(covariance_type, rng), rows, covariance_type)

    def terms(mixture):
        weights = local_weights(mixture, None) @ np.eye(2)[mixture.cluster_of]
        likelihood = share(mixture, rows, covariance_type).log_likelihoods.sum()
        components = regularised(mixture.statistics, covariance_type, np.zeros(2))
        return likelihood + np.log(weights).sum(), components

    for _ in range(4):
        before, now = now, share(now, rows, covariance_type)
        (old, was), (new, components) = terms(before), terms(now)
        if covariance_type in SHRUNK:
            statistics = now.statistics
            W = np.average(statistics.covariances, axis=0, weights=statistics.counts)
            if W.ndim == 2:
                few = 2 / (statistics.counts.sum() + 2)
                W = (1 - few) * W + few * np.diag(np.diag(W))
            old, new = old + log_prior(was, W, 2.0), new + log_prior(components, W, 2.0)
        assert new >= old - 1e-8


@given(seeds, st.integers(1, 3))
def test_clients_keep_their_largest_clusters(seed, n_local):
    rng = np.random.default_rng(seed)
    mixture = random_mixture("identity", rng, cluster_of=(0, 1, 1, 2))
    weights = local_weights(mixture, np.full(3, n_local))
    assert_allclose(weights.sum(axis=1), 1.0)
    onehot = np.eye(3)[mixture.cluster_of]
    for own, clusters in zip(mixture.local_counts @ onehot, weights @ onehot, strict=True):
        assert_array_equal(np.flatnonzero(clusters), np.sort(np.argsort(-own)[:n_local]))
    # The parts of a cluster go together, in the proportion of all clients' rows.
    n = mixture.statistics.counts
    assert_allclose(weights[:, 1] * n[2], weights[:, 2] * n[1])


def test_clients_have_no_cluster_of_which_they_have_no_rows():
    mixture = random_mixture("identity", np.random.default_rng(0), cluster_of=(0, 1, 2))
    counts = np.array([[9.0, 0.2, 0.0], [0.0, 6.0, 0.1], [0.3, 0.2, 0.05]])
    mixture = SharedMixture(mixture.statistics, mixture.cluster_of, counts, np.zeros(3))
    has = local_weights(mixture, np.full(3, 2), fewest_rows=0.5) > 0
    # The second client has most rows of the third cluster, the third client its largest.
    assert_array_equal(has, [[1, 0, 0], [0, 1, 1], [1, 0, 0]])
    # Where the second may keep one only, the first has the third: nobody else may keep it.
    has = local_weights(mixture, np.array([3, 1, 2]), fewest_rows=0.5) > 0
    assert_array_equal(has, [[1, 0, 1], [0, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_clients_are_sent_nothing_that_they_have_no_weight_for(covariance_type):
    mixture = random_mixture(covariance_type, np.random.default_rng(0))
    weights = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]])
    parts = parts_for(mixture, weights, covariance_type, np.zeros(2))
    assert [len(part.means) for part in parts] == [2, 1, 3]
    for part, own in zip(parts, weights, strict=True):
        assert_array_equal(part.means, mixture.statistics.means[own > 0])
        assert_array_equal(part.weights, own[own > 0])


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_what_only_absent_clients_have_stays_as_it_is(covariance_type):
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(20, 2)) for _ in range(3)]
    before = random_mixture(covariance_type, rng)
    before.local_counts[:2, 2] = 0.0  # the second cluster is the third client's alone
    before.local_counts[2, :2] = 0.0
    after = share(before, rows, covariance_type, np.ones(3, int), present=[0, 1])
    assert after.statistics.counts[2] == before.statistics.counts[2]
    assert_array_equal(after.statistics.means[2], before.statistics.means[2])
    if covariance_type in SHRUNK:
        assert_array_equal(after.statistics.covariances[2], before.statistics.covariances[2])
    assert_array_equal(after.local_counts[2], before.local_counts[2])
    assert np.isnan(after.log_likelihoods[2])
    assert_allclose(after.statistics.counts[:2].sum(), 40)


def test_a_round_without_replies_changes_nothing_but_the_age():
    before = random_mixture("full", np.random.default_rng(0))
    after = updated(before, np.ones((3, 3)), [], "full")
    assert after.statistics is before.statistics
    assert after.age == before.age + 1


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_parameters_counted_one_by_one(covariance_type, n_features):
    rng = np.random.default_rng(0)
    cluster_of = (0, 0, 0, 1, 2, 2)
    mixture = random_mixture(covariance_type, rng, cluster_of=cluster_of, n_features=n_features)
    covariances = mixture.statistics.covariances
    # Numbers drawn at random differ unless they have to be the same, or zero.
    free = set() if covariances is None else set(covariances[covariances != 0].ravel())
    shares = sum(cluster_of.count(k) - 1 for k in range(3))
    assert n_parameters(mixture, covariance_type) == 6 * n_features + len(free) + shares


def test_the_bic():
    mixture = random_mixture("diag", np.random.default_rng(0), cluster_of=(0, 1, 2))
    n_rows, n_local = np.array([10, 20, 30]), np.array([1, 2, 9])
    assert bayesian_information(mixture, n_rows, n_local, "diag") == -np.inf
    likelihoods = np.array([-30.0, -50.0, -40.0])
    known = SharedMixture(mixture.statistics, mixture.cluster_of, mixture.local_counts, likelihoods)
    own = 0.5 * (1 * np.log(20) + 2 * np.log(30))  # no client has more clusters than there are
    assert_allclose(own_penalties(known, n_rows, n_local).sum(), own)
    found = bayesian_information(known, n_rows, n_local, "diag")
    assert_allclose(found, -120 - 0.5 * 12 * np.log(60) - own)


def test_the_evidence():
    mixture = random_mixture("diag", np.random.default_rng(0), cluster_of=(0, 1, 2))
    n_rows = np.array([10, 20, 20])
    counts = np.array([[9.0, 1.0, 0.0], [0.0, 20.0, 0.0], [5.0, 5.0, 10.0]])
    mixture = replace(
        mixture,
        statistics=replace(mixture.statistics, counts=counts.sum(axis=0)),
        local_counts=counts,
        log_likelihoods=np.array([-5.0, np.nan, -7.0]),
    )
    d = 2
    means = d * np.log([15, 27, 11]).sum() / 2
    variances = d * np.log([16 / 2, 28 / 2, 12 / 2]).sum() / 2
    own = (np.log(10) + 2 * np.log(20)) / 2  # for two, one and three clusters
    found = evidence(mixture, n_rows, "diag")
    assert_allclose(found, -5 - 7 - 12 / 30 * 20 - means - variances - own)
    unknown = replace(mixture, log_likelihoods=np.full(3, np.nan))
    assert evidence(unknown, n_rows, "diag") == -np.inf


@given(seeds, st.integers(1, 6))
def test_clusters_that_a_client_has_answer_for_99_of_100_rows(seed, n_clusters):
    counts = np.random.default_rng(seed).dirichlet(np.full(n_clusters, 0.3), size=5) * 100
    for own, n in zip(counts, n_present(counts), strict=True):
        largest = np.sort(own)[::-1]
        assert largest[:n].sum() >= 99 - 1e-9
        assert largest[: n - 1].sum() < 99 + 1e-9


def test_a_cluster_that_no_client_may_keep_is_none():
    mixture = random_mixture("diag", np.random.default_rng(0), cluster_of=(0, 1, 2))
    counts = np.array([[9.0, 2.0, 1.0], [8.0, 2.0, 1.0], [1.0, 5.0, 2.0]])
    mixture = SharedMixture(mixture.statistics, mixture.cluster_of, counts, np.zeros(3))
    n_rows = np.array([12, 11, 8])
    assert bayesian_information(mixture, n_rows, np.array([2, 1, 1]), "diag") == -np.inf
    assert np.isfinite(bayesian_information(mixture, n_rows, np.array([2, 1, 2]), "diag"))


def test_who_has_not_answered_counts_like_the_others():
    mixture = random_mixture("diag", np.random.default_rng(0))
    some = np.array([-30.0, np.nan, -60.0])
    mixture = SharedMixture(mixture.statistics, mixture.cluster_of, mixture.local_counts, some)
    assert_allclose(all_likelihoods(mixture, np.array([10, 7, 20])), [-30.0, -21.0, -60.0])


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_moments_of_clusters_are_those_of_their_rows(covariance_type):
    """Rows drawn from the parts, as many as each has rows."""
    rng = np.random.default_rng(0)
    mixture = random_mixture(covariance_type, rng)
    components = regularised(mixture.statistics, covariance_type, np.zeros(2))
    means, covariances = cluster_moments(components, mixture)
    n = (3000 * mixture.statistics.counts).astype(int)
    single = SharedMixture(mixture.statistics, np.arange(3), mixture.local_counts, np.zeros(3))
    shapes = cluster_moments(components, single)[1]
    drawn = [
        rng.multivariate_normal(*part) for part in zip(components.means, shapes, n, strict=True)
    ]
    for k, X in enumerate([np.concatenate(drawn[:2]), drawn[2]]):
        assert_allclose(means[k], X.mean(axis=0), atol=0.05)
        assert_allclose(covariances[k], np.cov(X.T), rtol=0.05, atol=0.1)

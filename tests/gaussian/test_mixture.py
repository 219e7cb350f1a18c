import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fedgem.gaussian.covariances import matrices
from fedgem.gaussian.estep import e_step
from fedgem.gaussian.mixture import fit_any_number, fit_mixture, regularised, weights_of
from fedgem.gaussian.shrinkage import log_prior
from fedgem.gaussian.statistics import Statistics
from fedgem.rows import Rows
from strategies import COVARIANCE_TYPES, covariances_of_type, seeds

SHRUNK = ["full", "diag", "spherical"]


def some_statistics(covariance_type, rng, n_components=3, n_features=4):
    covariances = covariances_of_type(covariance_type, n_components, n_features, rng)
    if covariance_type == "tied":
        covariances = covariances[None]
    means = rng.normal(size=(n_components, n_features))
    return Statistics(rng.uniform(0, 50, size=n_components), means, covariances)


def pooled_covariance(statistics):
    """W: the mean of the covariances, what features share of it shrunk where rows are few."""
    total, d = statistics.counts.sum(), statistics.means.shape[1]
    W = np.average(statistics.covariances, axis=0, weights=statistics.counts)
    if W.ndim == 2:
        W = np.where(np.eye(d, dtype=bool), W, W * total / (total + d))
    return W


@pytest.mark.parametrize("covariance_type", SHRUNK)
@given(seed=seeds, tied=st.floats(0, 1))
def test_covariances_shrink_as_if_d_more_rows_had_the_pooled_one(covariance_type, seed, tied):
    some = some_statistics(covariance_type, np.random.default_rng(seed))
    found = regularised(some, covariance_type, np.zeros(4), tied).covariances
    W = pooled_covariance(some)
    for n, S, shrunk in zip(some.counts, some.covariances, found, strict=True):
        assert_allclose(shrunk, (1 - tied) * (n * S + 4 * W) / (n + 4) + tied * W)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_floor_makes_covariances_positive_definite_whatever_the_rows(covariance_type):
    zeros = covariances_of_type(covariance_type, 2, 3, np.random.default_rng(0))
    zeros = None if zeros is None else 0 * (zeros[None] if covariance_type == "tied" else zeros)
    for counts in ([5.0, 1.0], [5.0, 0.0], [0.0, 0.0]):
        some = Statistics(np.array(counts), np.zeros((2, 3)), zeros)
        found = regularised(some, covariance_type, np.full(3, 1e-6))
        assert np.linalg.eigvalsh(matrices(found)).min() > 1e-7


def test_what_is_tied_is_not_shrunk():
    some = some_statistics("tied", np.random.default_rng(0))
    assert_array_equal(regularised(some, "tied", np.zeros(4)).covariances, some.covariances[0])


@given(seeds)
def test_weights_maximise_the_likelihood_with_a_row_more_each(seed):
    rng = np.random.default_rng(seed)
    counts, other = rng.uniform(0, 9, size=4), rng.dirichlet(np.ones(4)) + 1e-12
    found = weights_of(counts)
    assert_allclose(found.sum(), 1.0)
    assert (counts + 1) @ np.log(other) <= (counts + 1) @ np.log(found) + 1e-9


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@given(seeds)
def test_em_steps_do_not_lower_what_they_maximise(covariance_type, seed):
    """With shrinkage, that is the likelihood with the prior that the new statistics come with.

    The prior's W moves with the statistics, so the objective of two steps is not one function;
    but each step maximises the expected log-likelihood plus the prior of its own W, and therefore
    does not lower the log-likelihood plus that prior. Without shrinkage it is plain EM.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 2)) + 3 * rng.integers(2, size=(40, 1))
    rows = Rows.from_array(X)
    covariances = covariances_of_type(covariance_type, 3, 2, rng)
    if covariance_type == "tied":
        covariances = covariances[None]
    now = Statistics(np.ones(3), X[:3], covariances)
    for _ in range(5):
        before = regularised(now, covariance_type, np.zeros(2)), weights_of(now.counts)
        now, likelihood_before = e_step(rows, before[0], np.log(before[1]))
        after = regularised(now, covariance_type, np.zeros(2)), weights_of(now.counts)
        likelihood_after = e_step(rows, after[0], np.log(after[1]))[1]

        def penalised(components, weights, likelihood, now=now):
            prior = 0.0
            if covariance_type in SHRUNK:
                prior = log_prior(components, pooled_covariance(now), 2.0)
            return likelihood + np.log(weights).sum() + prior

        assert penalised(*after, likelihood_after) >= penalised(*before, likelihood_before) - 1e-8


def two_clusters(rng, n_features=2, distance=12.0):
    y = np.repeat([0, 1], [70, 30])
    return rng.normal(size=(100, n_features)) + distance * y[:, None], y


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_fit_finds_the_clusters(covariance_type):
    X, y = two_clusters(np.random.default_rng(0))
    args = covariance_type, np.full(2, 1e-6), 3, [0]
    for statistics, _ in (
        fit_mixture(Rows.from_array(X), 2, *args),
        fit_any_number(Rows.from_array(X), *args),
    ):
        assert_allclose(np.sort(statistics.counts), [30, 70], atol=0.1)
        labels = np.abs(X[:, :1] - statistics.means[:, 0]).argmin(axis=1)
        assert adjusted_rand_score(y, labels) == 1.0


def test_covariances_that_are_free_at_the_end():
    """Two clusters that differ in their shapes only: nothing of the tied start is left."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 2)) * s for s in ([1, 20], [20, 1])])
    statistics, _ = fit_mixture(Rows.from_array(X), 2, "diag", np.zeros(2), 3, [0])
    spreads = np.sqrt(statistics.covariances)
    assert_allclose(np.sort(spreads, axis=1), [[1, 20], [1, 20]], rtol=0.35)
    assert (spreads[0, 0] < spreads[0, 1]) != (spreads[1, 0] < spreads[1, 1])


def test_the_same_seed_gives_the_same_bits():
    X, _ = two_clusters(np.random.default_rng(0), distance=2.0)
    fits = [fit_mixture(Rows.from_array(X), 3, "full", np.zeros(2), 2, [s]) for s in (1, 1)]
    assert_array_equal(fits[0][0].means, fits[1][0].means)
    assert fits[0][1] == fits[1][1]


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_fewer_rows_than_features(covariance_type, n_rows):
    X = np.random.default_rng(0).normal(size=(n_rows, 9))
    args = Rows.from_array(X), covariance_type, np.full(9, 1e-6), 1, [0]
    assert len(fit_any_number(*args)[0].counts) == 1
    statistics, likelihood = fit_mixture(args[0], n_rows, *args[1:])
    assert_allclose(statistics.counts.sum(), n_rows)
    assert np.isfinite(likelihood)

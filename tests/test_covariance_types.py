"""Collaborative training of every covariance type, with fixed and with learned weights."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedgem.client import Client, respond
from fedgem.engines.local import LocalEngine
from fedgem.gaussian.covariances import Gaussians, matrices
from fedgem.gaussian.density import log_joint
from fedgem.messages import ENVELOPE
from fedgem.rows import Rows
from fedgem.server import Components, Settings, Training, aggregate
from strategies import COVARIANCE_TYPES, rows_and_means, seeds

WITH_COVARIANCES = [one for one in COVARIANCE_TYPES if one != "identity"]
K, D = 3, 2


def federation(covariance_type, *, learn_weights=False, n_rows=80, d=D):
    """Four clients with three each of six clusters of different shapes."""
    rng = np.random.default_rng(0)
    centres = 6 * rng.normal(size=(6, d))
    factors = np.eye(d) + 0.5 * rng.normal(size=(6, d, d))
    clients = {}
    for g in range(4):
        labels = rng.choice(6, K, replace=False)[rng.integers(K, size=n_rows)]
        noise = np.einsum("nij,nj->ni", factors[labels], rng.normal(size=(n_rows, d)))
        clients[f"plant-{g}"] = Client(
            f"plant-{g}",
            Rows.from_array(centres[labels] + noise),
            np.full(K, 1 / K),
            seed=0,
            covariance_type=covariance_type,
            learn_weights=learn_weights,
        )
    return clients


def states(clients, engine=None, **settings_):
    """Every state of a training, in order."""
    client = next(iter(clients.values()))
    seen = []
    start = Training(
        tuple(clients),
        Settings(
            covariance_type=client.covariance_type, learn_weights=client.learn_weights, **settings_
        ),
    )
    (engine or LocalEngine(n_jobs=1)).run(start, clients, on_round=seen.append)
    return seen


@pytest.mark.parametrize("learn_weights", [False, True])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@settings(max_examples=25)
@given(
    cases=st.lists(rows_and_means(), min_size=1, max_size=3),
    n_steps=st.integers(1, 2),
    n_init=st.integers(1, 2),
    cannot_link=st.booleans(),
    participation=st.sampled_from([1.0, 0.5]),
    seed=seeds,
)
def test_no_clients_objective_ever_falls(
    covariance_type, learn_weights, cases, n_steps, n_init, cannot_link, participation, seed
):
    d = min(X.shape[1] for X, _ in cases)
    rng = np.random.default_rng(seed)
    clients = {}
    for g, (X, means) in enumerate(cases):
        weights = rng.dirichlet(np.ones(min(len(means), len(X))))
        clients[str(g)] = Client(
            str(g),
            Rows.from_array(X[:, :d]),
            weights,
            seed,
            n_init,
            covariance_type=covariance_type,
            learn_weights=learn_weights,
        )
    engine = LocalEngine(n_jobs=1, participation=participation)
    last = dict.fromkeys(clients, -np.inf)
    for state in states(clients, engine, max_iter=6, n_steps=n_steps, cannot_link=cannot_link):
        for name, objective in state.history[-1].objectives.items():
            assert objective >= last[name] - 1e-9 * (1 + abs(objective))
            last[name] = objective


def straight(client, components, weights):
    """The local objective, from its definition."""
    X = np.concatenate(list(client.rows.blocks()))
    total = np.logaddexp.reduce(log_joint(X, components, np.log(weights)), axis=1).sum()
    if client.learn_weights:
        total += np.log(weights).sum()
    prior, d = client.model.prior, X.shape[1]
    if prior is not None:
        prior = prior if prior.ndim == 2 else prior * np.eye(d)
        own = matrices(components)
        for S in own[:1] if client.covariance_type == "tied" else own:
            total -= d / 2 * (np.linalg.slogdet(S)[1] + np.trace(np.linalg.inv(S) @ prior))
    return total / len(X)


@pytest.mark.parametrize("learn_weights", [False, True])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_reported_objective_is_the_penalised_likelihood_at_what_was_sent(
    covariance_type, learn_weights
):
    clients = federation(covariance_type, learn_weights=learn_weights)
    seen = states(clients)
    before, after = seen[2:4]
    for name, request in before.requests().items():
        client = clients[name]
        components = Gaussians(request.means, request.covariances, covariance_type)
        weights = request.weights if learn_weights else client.weights
        expected = straight(client, components, weights)
        assert_allclose(after.history[-1].objectives[name], expected)
    assert seen[-1].history[-1].objective > seen[0].history[0].objective


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_one_client_alone_is_ordinary_em(covariance_type):
    """Nothing to meet: the server's answer is the M-step, and training converges to a maximum."""
    clients = dict(list(federation(covariance_type, learn_weights=True).items())[:1])
    (client,) = clients.values()
    last = states(clients, max_iter=150)[-1]
    (member,) = last.members.values()
    components, weights = member.components(last.settings)
    best = straight(client, components, weights)
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1e-2):
        moved = replace(
            components, means=components.means + scale * rng.normal(size=components.means.shape)
        )
        assert straight(client, moved, weights) < best
        assert straight(client, components, weights + scale * np.array([1, 0, -1])) < best
        if components.covariances is not None:
            moved = replace(components, covariances=(1 + scale) * components.covariances)
            assert straight(client, moved, weights) < best


@pytest.mark.parametrize("learn_weights", [False, True])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_bytes_are_the_documented_ones(covariance_type, learn_weights):
    """Up K counts, K d means and the covariances; down the same without counts."""
    covariances = {"full": K * D**2, "tied": D**2, "diag": K * D, "spherical": K, "identity": 0}
    prior = {"full": D**2, "tied": D**2, "diag": D, "spherical": 1, "identity": 0}
    shape, own = covariances[covariance_type], prior[covariance_type]
    learned = K if learn_weights else 0
    history = states(federation(covariance_type, learn_weights=learn_weights))[-1].history
    for row in history[1:]:
        assert set(row.bytes_up.values()) == {8 * (K * (D + 1) + shape) + 2 * ENVELOPE}
        assert set(row.bytes_down.values()) == {8 * (K * D + shape + learned) + 2 * ENVELOPE}
    # Once: radii and what they are measured in, weights, size, and what covariances shrink towards.
    first = 8 * (K * (D + 3) + 2 * shape + own) + 3 * ENVELOPE
    assert set(history[0].bytes_up.values()) == {first}
    assert set(history[0].bytes_down.values()) == {2 * ENVELOPE}
    # Several local steps add radii and what they are measured in to every reply.
    history = states(federation(covariance_type), n_steps=2)[-1].history
    several = 8 * (K * (D + 2) + 2 * shape) + 2 * ENVELOPE
    assert set(history[-1].bytes_up.values()) == {several}


@pytest.mark.parametrize("covariance_type", WITH_COVARIANCES)
def test_a_client_with_fewer_rows_than_features(covariance_type):
    clients = federation(covariance_type, learn_weights=True, n_rows=9, d=20)
    last = states(clients)[-1]
    components = Components.of(last)
    clusters = aggregate(components, np.arange(len(components.owners)))
    assert np.all(np.linalg.eigvalsh(clusters.covariances) > 0)
    for member in last.members.values():
        assert np.isfinite(member.statistics.means).all()


@pytest.mark.parametrize("covariance_type", WITH_COVARIANCES)
def test_rows_that_are_all_the_same(covariance_type):
    clients = {
        "a": Client("a", Rows.from_array(np.full((5, 2), 7.1)), np.full(2, 0.5), 0,
                    covariance_type=covariance_type)
    }  # fmt: skip
    assert_allclose(Components.of(states(clients)[-1]).means, 7.1)


def test_a_restarted_client_finds_the_same_prior():
    client = federation("full")["plant-0"]
    assert_array_equal(replace(client).model.prior, client.model.prior)


@pytest.mark.parametrize("covariance_type", WITH_COVARIANCES)
def test_same_bits_on_any_number_of_threads(covariance_type, monkeypatch):
    from fedgem import rows

    monkeypatch.setattr(rows, "BLOCK_BYTES", 2**10)
    clients = federation(covariance_type, learn_weights=True, n_rows=500)
    alone = states(clients)[-1]
    for n_jobs in (2, 5):
        again = {name: replace(client) for name, client in clients.items()}
        together = states(again, LocalEngine(n_jobs=n_jobs))[-1]
        for name, member in alone.members.items():
            other = together.members[name]
            assert_array_equal(other.means, member.means)
            assert_array_equal(other.statistics.covariances, member.statistics.covariances)
        assert [r.objectives for r in together.history] == [r.objectives for r in alone.history]


@pytest.mark.parametrize("covariance_type", WITH_COVARIANCES)
def test_an_absent_clients_start_stays_in_its_ellipsoids(covariance_type):
    clients = federation(covariance_type)
    state = Training(tuple(clients), Settings(max_iter=5, covariance_type=covariance_type))
    state = state.advance({n: respond(state.requests()[n], c) for n, c in clients.items()})
    absent, *present = clients
    later = state.advance({n: respond(state.requests()[n], clients[n]) for n in present})
    before, after = state.members[absent], later.members[absent]
    assert_array_equal(after.statistics.means, before.statistics.means)
    assert_array_equal(after.shapes, before.shapes)


def test_covariances_beat_identities_on_clusters_that_are_long():
    """Two parallel ridges: balls of unit size cut across them, ellipsoids run along."""
    rng = np.random.default_rng(1)
    ridges = np.array([[0.0, 0.0], [0.0, 3.0]])
    truth = rng.integers(2, size=600)
    X = ridges[truth] + rng.normal(size=(600, 2)) * [8.0, 0.4]

    def agreement(covariance_type):
        client = Client("a", Rows.from_array(X), np.full(2, 0.5), 0, n_init=3,
                        covariance_type=covariance_type)  # fmt: skip
        last = states({"a": client}, max_iter=60)[-1]
        components, weights = last.members["a"].components(last.settings)
        labels = log_joint(X, components, np.log(weights)).argmax(axis=1)
        return max((labels == truth).mean(), (labels != truth).mean())

    assert agreement("identity") < 0.7
    assert agreement("full") > 0.95


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_units_do_not_matter(covariance_type):
    """Features in other units: the same rounds, and the same components in those units."""
    units = np.array([1e3, 1e-4])
    clients = federation(covariance_type, learn_weights=True)
    others = {
        name: replace(
            client, source=Rows.from_array(np.concatenate(list(client.rows.blocks())) * units)
        )
        for name, client in clients.items()
    }
    here, there = (states(some, max_iter=60, tol=1e-3) for some in (clients, others))
    assert len(here) == len(there) < 61
    for name, member in here[-1].members.items():
        assert_allclose(there[-1].members[name].means, member.means * units, rtol=1e-6)
        assert_allclose(
            there[-1].members[name].squared_radii, member.squared_radii, rtol=1e-3, atol=1e-9
        )


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_clusters_covariance_is_that_of_its_rows_about_its_mean(ndim):
    own = np.array([1.0, 2.0, 5.0]) if ndim == 1 else np.ones((3, 2)) * [[1.0], [2.0], [5.0]]
    components = Components(
        names=("a", "b"),
        owners=np.array([0, 0, 1]),
        means=np.array([[0.0, 0.0], [9.0, 9.0], [2.0, 4.0]]),
        weights=np.array([0.5, 0.5, 1.0]),
        counts=np.array([30.0, 10.0, 10.0]),
        n_rows=np.array([40, 10]),
        covariances=own[:, :, None] * np.eye(2) if ndim == 3 else own,
    )
    clusters = aggregate(components, np.array([0, 1, 0]))
    within = (30 * 1.0 + 10 * 5.0) / 40
    between = np.outer([1.0, 2.0], [1.0, 2.0])  # from (1, 2), the mean of both means
    expected = {
        1: (within + 2.5) * np.eye(2),
        2: within * np.eye(2) + np.diag(np.diag(between)),
        3: within * np.eye(2) + between,
    }[ndim]
    assert_allclose(clusters.covariances, [expected, 2.0 * np.eye(2)])

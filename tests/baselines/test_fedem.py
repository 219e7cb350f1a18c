import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from fedgem import LocalEngine
from fedgem.baselines.fedem import FedEM


@pytest.fixture(scope="module")
def plants():
    """Three overlapping clusters in the plane, with unlike shares at the clients."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    shares = {"a": [0.8, 0.2, 0.0], "b": [0.1, 0.5, 0.4], "c": [0.0, 0.0, 1.0]}
    return {
        name: centres[rng.choice(3, size=60, p=share)] + rng.normal(size=(60, 2))
        for name, share in shares.items()
    }


def test_clusters_that_lie_apart_by_hand():
    clients = {"a": np.array([0.0, 1.0, 2.0, 100.0]), "b": np.array([3.0, 104.0, 105.0])}
    model = FedEM(2, random_state=0).fit({name: x[:, None] for name, x in clients.items()})
    order = model.means_.ravel().argsort()
    assert_allclose(model.means_[order], [[1.5], [103.0]], rtol=1e-6)
    # One row more for each component, and for each covariance one with that within all, 17/7.
    within = (4 * 1.25 + 3 * 14 / 3) / 7
    expected = [(4 * 1.25 + within) / 5, (3 * 14 / 3 + within) / 4]
    assert_allclose(model.covariances_[order].ravel(), expected, rtol=1e-3)
    assert_allclose(model.weights_[:, order], [[4 / 6, 2 / 6], [2 / 5, 3 / 5]], rtol=1e-6)
    assert_allclose(model.pooled_weights_[order], [5 / 9, 4 / 9], rtol=1e-6)


def test_a_round_is_a_step_of_em_with_weights_for_each_client(plants):
    before, after = (FedEM(3, max_iter=n, random_state=0).fit(plants) for n in (1, 2))
    q = []
    for X, weights in zip(plants.values(), before.weights_, strict=True):
        components = zip(weights, before.means_, before.covariances_, strict=True)
        joint = np.stack([w * multivariate_normal.pdf(X, m, S) for w, m, S in components], axis=1)
        q.append(joint / joint.sum(axis=1, keepdims=True))
    for weights, responsibilities in zip(after.weights_, q, strict=True):
        assert_allclose(weights, (responsibilities.sum(axis=0) + 1) / (60 + 3), rtol=1e-9)
    X, q = np.concatenate(list(plants.values())), np.concatenate(q)
    priors = []
    for k in range(3):
        assert_allclose(after.means_[k], np.average(X, axis=0, weights=q[:, k]), rtol=1e-9)
        steps = X - after.means_[k]
        scatter = (q[:, k, None] * steps).T @ steps
        priors.append(after.covariances_[k] * (q[:, k].sum() + 2) - scatter)
    assert_allclose(priors[1:], [priors[0]] * 2, rtol=1e-6)  # two rows with the same covariance
    assert (np.linalg.eigvalsh(priors[0]) > 0).all()


@pytest.mark.parametrize("n_clusters", [1, 3, 8])
def test_the_objective_never_falls(plants, n_clusters):
    model = FedEM(n_clusters, random_state=0).fit(plants)
    assert len(model.objectives_) > 1
    assert (np.diff(model.objectives_) > -1e-8).all()


def test_a_client_that_misses_a_round_keeps_what_it_said():
    clients = {"a": np.zeros((4, 1)), "b": np.full((8, 1), 6.0)}
    model = FedEM(1, max_iter=20, engine=LocalEngine(participation=0.5), random_state=0).fit(
        clients
    )
    assert {tuple(row.bytes_up) for row in model.history_} == {("a",), ("b",)}
    assert_allclose(model.means_, [[4.0]])


def test_missing_clients_change_little_in_the_end(plants):
    whole = FedEM(3, random_state=0).fit(plants)
    partial = FedEM(3, engine=LocalEngine(participation=0.6), random_state=0).fit(plants)
    order = np.abs(whole.means_[:, None] - partial.means_).sum(axis=2).argmin(axis=1)
    assert_allclose(partial.means_[order], whole.means_, atol=0.01)
    assert_allclose(partial.weights_[:, order], whole.weights_, atol=0.01)


def test_a_client_that_never_answered_has_the_weights_of_all():
    clients = {name: np.arange(9.0)[:, None] for name in "abcd"}
    model = FedEM(2, max_iter=1, engine=LocalEngine(participation=0.25), random_state=0).fit(
        clients
    )
    heard = {name for row in model.history_ for name in row.bytes_up}
    silent = [g for g, name in enumerate(clients) if name not in heard]
    assert silent
    assert_allclose(model.weights_[silent], [model.pooled_weights_] * len(silent))


def test_rows_go_to_components_that_their_client_has(plants):
    model = FedEM(3, random_state=0).fit(plants)
    between = [[2.0, 0.0], [0.0, 2.0]]
    first, _ = model.predict(between, client="b")
    assert (
        model.predict(between, client="c").tolist() != model.predict(between, client="a").tolist()
    )
    assert first == np.square(model.means_ - [4.0, 0.0]).sum(axis=1).argmin()


def test_a_component_of_one_row_in_many_features_has_a_density():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(12, 20)), np.full((1, 20), 50.0)])
    model = FedEM(3, random_state=0).fit({"a": X[:6], "b": X[6:]})
    assert (np.linalg.eigvalsh(model.covariances_) > 0).all()

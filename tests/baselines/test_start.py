import numpy as np
from numpy.testing import assert_allclose

from fedgem import LocalEngine
from fedgem.baselines import Federation
from fedgem.baselines.start import federated_start
from fedgem.client import Client
from fedgem.rows import Rows


def federation_of(clients, engine=None):
    members = {
        name: Client(name, Rows.from_array(np.asarray(X)), np.ones(1), seed=0)
        for name, X in clients.items()
    }
    return Federation(members, engine or LocalEngine(), seed=0)


def test_clusters_that_lie_apart_are_found_with_their_statistics():
    rng = np.random.default_rng(0)
    near, far = rng.normal(size=(30, 2)), rng.normal([90.0, 0.0], 1.0, size=(50, 2))
    clients = {"a": near[:10], "b": np.concatenate([near[10:], far[:20]]), "c": far[20:]}
    start, names = federated_start(federation_of(clients), 2, "full")
    order = start.statistics.means[:, 0].argsort()
    for k, X in zip(order, (near, far), strict=True):
        assert_allclose(start.statistics.means[k], X.mean(axis=0))
        assert_allclose(start.statistics.covariances[k], np.cov(X.T, bias=True))
    assert names == ["a", "b", "c"]
    assert_allclose(start.local_counts[:, order], [[10, 0], [20, 20], [0, 30]])


def test_there_are_no_more_clusters_than_distinct_rows():
    start, _ = federated_start(federation_of({"a": np.zeros((3, 1)), "b": np.ones((1, 1))}), 8)
    assert sorted(start.statistics.means.ravel()) == [0.0, 1.0]
    assert sorted(start.statistics.counts) == [1.0, 3.0]


def test_only_clients_that_answer_have_a_say():
    clients = {"a": np.zeros((3, 1)), "b": np.ones((1, 1))}
    start, names = federated_start(federation_of(clients, LocalEngine(participation=0.5)), 1)
    assert start.statistics.means[0, 0] == {"a": 0.0, "b": 1.0}[names[0]]

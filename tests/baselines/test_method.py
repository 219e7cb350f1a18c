import numpy as np
import pytest

from fedgem import InputError, LocalEngine
from fedgem.baselines import METHODS, Federation, Method
from fedgem.messages import MomentsRequest
from fedgem.typing import Array

CLIENTS = {"a": np.zeros((4, 2)), "b": np.full((8, 2), 6.0)}


class Mean(Method):
    """One cluster: the mean of all rows."""

    def __init__(self, n_clusters=1, engine=None, random_state=None):
        self.n_clusters = n_clusters
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        replies = federation.ask(MomentsRequest())
        counts = [reply.statistics.counts[0] for reply in replies.values()]
        means = [reply.statistics.means[0] for reply in replies.values()]
        return np.average(means, axis=0, weights=counts)[None]


def test_a_method_asks_its_clients():
    model = Mean().fit(CLIENTS)
    np.testing.assert_allclose(model.means_, [[4.0, 4.0]])
    assert model.n_clusters_ == 1
    assert model.clients_ == ("a", "b")
    assert [len(labels) for labels in model.labels_] == [4, 8]
    assert set(model.history_[0].bytes_up) == {"a", "b"}


def test_one_array_is_labelled_in_its_order():
    model = Mean().fit(np.arange(6.0).reshape(3, 2), clients=["b", "a", "b"])
    assert model.labels_.tolist() == [0, 0, 0]


def test_only_clients_that_answer_count():
    model = Mean(engine=LocalEngine(participation=0.5), random_state=0).fit(CLIENTS)
    assert model.means_[0, 0] in (0.0, 6.0)


def test_what_is_wrong_is_said():
    with pytest.raises(InputError, match="n_clusters"):
        Mean(n_clusters=0).fit(CLIENTS)
    with pytest.raises(InputError, match="no client 'c'"):
        Mean().fit(CLIENTS).predict(np.zeros((1, 2)), client="c")


def test_a_method_is_told_only_what_it_may_know():
    known = {"n_clusters": 10, "n_local_components": 3, "upsilon": 5.0, "random_state": 1}
    assert METHODS["FedGEM"].informed(**known).n_local_components == 3
    assert (
        METHODS["FedGEM"].informed(**known).upsilon is None
    )  # which would ask for the paper's way
    assert METHODS["FedGEM, told nothing"].informed(**known).n_local_components == "auto"
    assert METHODS["FedGEM, paper"].informed(**known).upsilon == 5.0

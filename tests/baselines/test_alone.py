import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedgem import FedGEM, InputError
from fedgem.baselines import METHODS
from fedgem.baselines.alone import Alone
from fedgem.datasets import make_federated_blobs

BLOBS = make_federated_blobs(n_clusters=5, min_distance=10, n_rows=200, random_state=0)
HELD = dict(zip(BLOBS.clients, BLOBS.memberships.sum(axis=1).tolist(), strict=True))
NAMES = ["k-means (no federation)", "FedGEM (no federation)"]


@pytest.mark.parametrize("name", NAMES)
def test_every_client_finds_its_own_and_shares_none(name):
    model = METHODS[name].informed(n_local_components=HELD, random_state=0).fit(BLOBS.clients)
    assert model.n_clusters_ == len(model.means_) == sum(HELD.values())
    for labels, truth in zip(model.labels_, BLOBS.labels.values(), strict=True):
        assert adjusted_rand_score(truth, labels) > 0.95
    numbers = [set(labels.tolist()) for labels in model.labels_]
    assert sum(map(len, numbers)) == len(set().union(*numbers))
    assert model.history_ == ()


def test_a_client_s_model_is_that_of_its_rows_alone():
    clients = dict(list(BLOBS.clients.items())[:2])
    first, second = clients
    both = Alone("FedGEM", 2, random_state=0).fit(clients)
    other = Alone("FedGEM", 2, random_state=0).fit({first: clients[first], second: np.eye(4)})
    np.testing.assert_array_equal(both.labels_[0], other.labels_[0])
    assert isinstance(both.models_[first], FedGEM)


def test_rows_of_nobody_go_to_the_nearest_mean_of_all():
    clients = {"a": [[0.0], [1.0], [8.0], [9.0]], "b": [[8.5], [30.0]]}
    model = Alone(n_local_components={"a": 2, "b": 2}, random_state=0).fit(clients)
    assert model.predict([[29.0]])[0] == model.predict([[30.0]], client="b")[0] >= 2
    assert model.predict([[29.0]], client="a")[0] == model.predict([[9.0]], client="a")[0] < 2


def test_there_are_two_models():
    with pytest.raises(InputError, match="k-means or FedGEM"):
        Alone("dbscan").fit(BLOBS.clients)

import numpy as np
import pytest
from sklearn.cluster import DBSCAN
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score, homogeneity_score
from sklearn.mixture import GaussianMixture

from fedgem.baselines import METHODS
from fedgem.baselines.central_density import MOST_ROWS, CentralDBSCAN, elbow
from fedgem.baselines.central_mixtures import CentralDPGMM, CentralGMM
from fedgem.datasets import make_federated_blobs

BLOBS = make_federated_blobs(n_clusters=5, min_distance=12, n_rows=200, random_state=0)
TRUTH = np.concatenate(list(BLOBS.labels.values()))
CENTRAL = [name for name in METHODS if name.endswith("(central)")]


def test_all_are_marked_as_central():
    assert len(CENTRAL) == 6
    assert not any(METHODS[name].is_federated for name in CENTRAL)


@pytest.mark.parametrize("name", CENTRAL)
def test_they_find_clusters_that_lie_far_apart(name):
    known = {"n_clusters": 5, "n_local_components": 3, "random_state": 0}
    model = METHODS[name].informed(**known).fit(BLOBS.clients)
    found = np.concatenate(model.labels_)
    assert adjusted_rand_score(TRUTH, found) > 0.95
    assert set(found) - {-1} == set(range(model.n_clusters_))
    assert model.means_.shape == (model.n_clusters_, 4)
    assert model.history_ == ()


@pytest.mark.parametrize("name", CENTRAL)
def test_who_has_a_row_makes_no_difference(name):
    X = np.concatenate(list(BLOBS.clients.values()))
    by_client, at_one = (
        METHODS[name].informed(n_clusters=5, random_state=0).fit(rows)
        for rows in (BLOBS.clients, {"all": X})
    )
    if not name.startswith("DP-GMM"):  # its bound is the number of all clients' components
        np.testing.assert_array_equal(np.concatenate(by_client.labels_), at_one.labels_[0])


def test_the_mixture_is_that_of_scikit_learn():
    X, _ = make_blobs(300, 2, centers=3, random_state=0)
    model = CentralGMM(3, max_iter=100, random_state=0).fit({"a": X[:100], "b": X[100:]})
    same = GaussianMixture(3, random_state=0).fit(X)
    assert adjusted_rand_score(np.concatenate(model.labels_), same.predict(X)) == 1
    np.testing.assert_allclose(model.mixture_.lower_bound_, same.lower_bound_, rtol=1e-3)


def test_components_without_rows_are_no_clusters():
    X = np.zeros((20, 2)) + np.arange(2)
    model = CentralDPGMM(5, random_state=0).fit({"a": X, "b": X})
    assert model.mixture_.n_components == 10
    assert model.n_clusters_ == 1


def test_dbscan_agrees_with_scikit_learn():
    X, _ = make_blobs(400, 3, centers=4, cluster_std=2, random_state=1)
    model = CentralDBSCAN().fit({"a": X})
    same = DBSCAN(eps=model.reach_ * (1 + 1e-12), min_samples=6).fit(X)
    core = same.core_sample_indices_
    assert 1 < model.n_clusters_ < len(core) < len(X)
    assert adjusted_rand_score(model.labels_[0][core], same.labels_[core]) == 1
    np.testing.assert_array_equal(model.labels_[0] == -1, same.labels_ == -1)


def test_the_elbow_is_where_a_curve_bends():
    curve = np.concatenate([np.linspace(1, 2, 91), np.linspace(3, 20, 10)])
    assert elbow(curve) == pytest.approx(2)
    assert elbow(np.ones(3)) == 1


def test_rows_beyond_the_most_are_labelled_like_those_near_them():
    X, y = make_blobs(MOST_ROWS + 1000, 2, centers=[[0, 0], [50, 50]], random_state=0)
    model = CentralDBSCAN(random_state=0).fit({"a": X})
    has_cluster = model.labels_[0] >= 0
    assert model.neighbours_.n_samples_fit_ <= MOST_ROWS
    assert has_cluster.mean() > 0.9
    homogeneity = homogeneity_score(y[has_cluster], model.labels_[0][has_cluster])
    assert homogeneity == pytest.approx(1)

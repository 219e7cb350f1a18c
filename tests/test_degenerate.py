"""Data that leaves little to go by: every fit ends, without a warning and without nonsense."""

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fedgem import FedGEM
from fedgem.rows import Rows
from soundness import assert_sound, separated
from strategies import COVARIANCE_TYPES, seeds, small_federations

TWO_OF_THREE = [(0, 1), (1, 2), (0, 2), (0, 1)]
EVERY_TYPE = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
GIVEN_OR_FOUND = pytest.mark.parametrize("found", [False, True], ids=["given", "auto"])


def fit(rows, n_local, covariance_type, found=False, **params):
    n_local = "auto" if found else n_local
    model = FedGEM(n_local, covariance_type=covariance_type, random_state=0, **params).fit(rows)
    assert_sound(model, rows)
    return model


def agreement(model, truth, names=None):
    """The least ARI of a client."""
    labels = dict(zip(model.clients_, model.labels_, strict=True))
    return min(adjusted_rand_score(truth[g], labels[g]) for g in names or truth)


@settings(max_examples=40)
@given(small_federations())
def test_any_small_federation_ends_well(case):
    rows, n_local, covariance_type = case
    fit(rows, n_local, covariance_type, max_iter=4, n_init=1)


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_one_client(covariance_type, found):
    rows, truth = separated([(0, 1)])
    model = fit(rows, 2, covariance_type, found)
    assert model.n_clusters_ == 2
    assert agreement(model, truth) == 1.0


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_clients_that_share_nothing(covariance_type, found):
    rows, truth = separated([(0, 1), (2, 3)])
    model = fit(rows, 2, covariance_type, found)
    # What one client's components lack in likeness to a cluster, "auto" may make up by number.
    assert model.n_clusters_ == 4 or found
    assert agreement(model, truth) > 0.7
    assert not (model.memberships_[0] & model.memberships_[1]).any()


@EVERY_TYPE
def test_clients_that_are_all_the_same(covariance_type):
    rows, truth = separated([(0, 1)])
    rows, truth = ({f"{g}": some["plant-0"] for g in range(4)} for some in (rows, truth))
    model = fit(rows, 2, covariance_type)
    assert model.n_clusters_ == 2
    assert agreement(model, truth) == 1.0
    assert_allclose(model.weights_, 0.5, atol=0.01)


@EVERY_TYPE
def test_clients_of_one_cluster_each(covariance_type):
    rows, _ = separated([(0,), (0,), (1,), (1,), (2,)])
    model = fit(rows, 1, covariance_type)
    assert model.n_clusters_ == 3
    assert [len(set(labels)) for labels in model.labels_] == [1] * 5
    assert [model.labels_[g][0] == model.labels_[g - 1][0] for g in (1, 2, 3, 4)] == [1, 0, 1, 0]


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_a_client_of_one_row(covariance_type, found):
    rows, truth = separated([(0, 1), (0, 1)])
    rows["alone"], truth["alone"] = rows["plant-0"][:1], truth["plant-0"][:1]
    model = fit(rows, [2, 2, 1], covariance_type, found)
    # "auto" may make two of a cluster by chance.
    assert found or model.labels_[2][0] == model.labels_[0][0]
    assert agreement(model, truth, ["plant-0", "plant-1"]) > (0.7 if found else 0.99)


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_one_row_in_all(covariance_type, found):
    model = fit({"alone": np.array([[3.0, -4.0]])}, 1, covariance_type, found)
    assert_allclose(model.means_, [[3.0, -4.0]])
    assert model.n_clusters_ == 1


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_five_rows_in_thirty_features(covariance_type, found):
    X = np.random.default_rng(0).normal(size=(5, 30))
    model = fit({"alone": X}, 1, covariance_type, found)
    assert model.n_clusters_ == 1
    assert_allclose(model.means_[0], X.mean(axis=0), atol=1e-6)


def many_features(n_features, n_rows=60, seed=0):
    """Clusters that differ in all features, as where many sensors see the same few things."""
    rng = np.random.default_rng(seed)
    centres = 10 * rng.normal(size=(3, n_features))
    truth = {f"{g}": rng.permutation(np.repeat(own, n_rows)) for g, own in enumerate(TWO_OF_THREE)}
    noise = {g: 0.5 * rng.normal(size=(len(y), n_features)) for g, y in truth.items()}
    return {g: centres[y] + noise[g] for g, y in truth.items()}, truth


@EVERY_TYPE
def test_a_client_with_fewer_rows_than_features(covariance_type):
    rows, truth = many_features(30)
    rows["few"], truth["few"] = rows["0"][:5], truth["0"][:5]
    model = fit(rows, 2, covariance_type)
    assert model.n_clusters_ == 3
    assert agreement(model, truth) == 1.0


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_two_hundred_features(covariance_type, found):
    rows, truth = many_features(200, n_rows=30)
    model = fit(rows, 2, covariance_type, found)
    if not found:  # 60 rows do not tell a client how many clusters it has in 200 dimensions
        assert model.n_clusters_ == 3
        assert agreement(model, truth) == 1.0


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_a_cluster_of_five_rows(covariance_type, found):
    rows, truth = separated([(0, 1), (0, 2), (1, 2)], n_rows=250)
    keep = {g: np.ones(500, bool) for g in rows}
    for g, rare in (("plant-0", 1), ("plant-2", 1)):
        keep[g][np.flatnonzero(truth[g] == rare)[5:]] = False
    rows = {g: X[keep[g]] for g, X in rows.items()}
    truth = {g: y[keep[g]] for g, y in truth.items()}
    model = fit(rows, 2, covariance_type, found)
    assert model.n_clusters_ == 3
    assert agreement(model, truth) > 0.99


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_copies_of_rows_change_nothing(covariance_type, found):
    rows, _ = separated(TWO_OF_THREE, n_rows=30)
    once = fit(rows, 2, covariance_type, found)
    tenfold = fit({g: np.tile(X, (10, 1)) for g, X in rows.items()}, 2, covariance_type, found)
    assert tenfold.n_clusters_ == once.n_clusters_
    for labels, again in zip(once.labels_, tenfold.labels_, strict=True):
        assert_array_equal(again, np.tile(labels, 10))


@given(seeds)
def test_copies_are_told_from_rows_that_happen_to_be_alike(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(3, size=(30, 3)).astype(float)
    twice = rng.permutation(np.concatenate([X, X]))
    found = np.concatenate(list(Rows.from_array(twice).without_copies().blocks()))
    divisor = np.gcd.reduce(np.unique(X, axis=0, return_counts=True)[1])
    assert len(found) == 30 / divisor
    assert_array_equal(np.unique(found, axis=0), np.unique(X, axis=0))
    more = Rows.from_array(np.concatenate([twice, [[9.0, 9.0, 9.0]]]))
    assert more.without_copies() is more


@EVERY_TYPE
def test_more_components_than_rows_that_differ(covariance_type):
    X = np.random.default_rng(0).normal(size=(12, 2))
    fit({"0": np.repeat(X, 4, axis=0)}, 20, covariance_type, max_iter=2)


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_three_rows_that_differ(covariance_type, found):
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    truth = {f"{g}": rng.choice(own, size=40) for g, own in enumerate(TWO_OF_THREE)}
    model = fit({g: corners[y] for g, y in truth.items()}, 2, covariance_type, found)
    assert model.n_clusters_ == 3
    assert agreement(model, truth) == 1.0


@EVERY_TYPE
@GIVEN_OR_FOUND
@pytest.mark.parametrize("value", [0.0, 1e5])
def test_rows_that_are_all_the_same(covariance_type, found, value):
    rows = {"0": np.full((20, 3), value), "1": np.full((10, 3), value)}
    model = fit(rows, 1, covariance_type, found)
    assert model.n_clusters_ == 1
    assert_allclose(model.means_, np.full((1, 3), value))


@EVERY_TYPE
def test_collinear_columns(covariance_type):
    rows, truth = separated(TWO_OF_THREE)
    rows = {g: np.column_stack([X, X[:, 0] + X[:, 1], -2 * X[:, 2]]) for g, X in rows.items()}
    model = fit(rows, 2, covariance_type)
    assert agreement(model, truth) == 1.0
    if covariance_type in ("full", "tied"):  # only they can tell that columns are collinear
        assert model.n_clusters_ == 3


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_a_constant_column(covariance_type, found):
    rows, truth = separated(TWO_OF_THREE, n_rows=30)
    plain = fit(rows, 2, covariance_type, found)
    rows = {g: np.insert(X, 1, 7.0, axis=1) for g, X in rows.items()}
    model = fit(rows, 2, covariance_type, found)
    assert_allclose(model.means_[:, 1], 7.0)
    if not (found and covariance_type == "spherical"):  # a variance that no sphere can have
        assert agreement(model, truth) >= min(0.99, agreement(plain, truth))


@EVERY_TYPE
@GIVEN_OR_FOUND
def test_features_of_very_different_scales(covariance_type, found):
    """Each is taken in its own unit: the labels are those of features scaled to unit variance."""
    rows, truth = separated(TWO_OF_THREE, n_rows=30)
    spread = np.concatenate(list(rows.values())).std(axis=0)
    scaled = fit({g: X / spread for g, X in rows.items()}, 2, covariance_type, found)
    scale = np.array([1e-6, 1.0, 1e6])
    model = fit({g: X * scale for g, X in rows.items()}, 2, covariance_type, found)
    for labels, expected in zip(model.labels_, scaled.labels_, strict=True):
        assert adjusted_rand_score(labels, expected) >= 0.95
    if not found and covariance_type in ("full", "tied", "diag"):
        assert model.n_clusters_ == 3
        assert agreement(model, truth) == 1.0


@EVERY_TYPE
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_far_from_the_origin(covariance_type, dtype):
    rows, truth = separated(TWO_OF_THREE)
    offset = 1e6 if dtype == np.float64 else 1e3  # what the digits of the type leave room for
    rows = {g: X.astype(dtype) for g, X in rows.items()}
    near = fit(rows, 2, covariance_type)
    far = fit({g: (X + dtype(offset)) for g, X in rows.items()}, 2, covariance_type)
    assert near.means_.dtype == far.means_.dtype == dtype
    assert near.n_clusters_ == far.n_clusters_ == 3
    assert agreement(near, truth) == agreement(far, truth) == 1.0
    for k, mean in enumerate(near.means_):  # the clusters are of one size, their order is open
        match = np.abs(far.means_ - offset - mean).max(axis=1).argmin()
        assert_allclose(far.means_[match] - offset, mean, atol=1e-2)
        assert_allclose(far.covariances_[match], near.covariances_[k], rtol=1e-2, atol=1e-2)

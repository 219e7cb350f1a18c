import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from fedgem import LocalEngine
from fedgem.baselines.k_fed import CentresRequest, KFed, farthest_first, spectral_start
from fedgem.client import Client, respond
from fedgem.rows import Rows

# Each client's means are its two pairs'.
CLIENTS = {
    "a": np.array([[-1.0], [1.0], [9.0], [11.0]]),
    "b": np.array([[0.5], [1.5], [29.0], [31.0]]),
}


def fit(**params):
    return KFed(3, random_state=0, **params).fit(CLIENTS)


def test_by_hand():
    """Means 0 and 10, and 1 and 30: from either client, the farthest leaves 0 and 1 together."""
    model = fit()
    assert_allclose(np.sort(model.means_.ravel()), [0.5, 10.0, 30.0])
    assert len(model.history_) == 1
    assert model.history_[0].bytes_up == {"a": 16, "b": 16}


def test_a_row_follows_its_mean_at_its_client():
    model = fit()
    X = np.array([[14.0]])
    assert_allclose(model.means_[model.predict(X)], 10.0)
    # At b, 14 is nearer to 1 than to 30, and 1 is with 0.
    assert_allclose(model.means_[model.predict(X, client="b")], 0.5)


def test_a_client_that_never_answered_has_no_means():
    model = fit(engine=LocalEngine(participation=0.5))
    (missing,) = set(CLIENTS) - set(model.client_means_)
    X = np.linspace(-5, 35, 9)[:, None]
    assert_array_equal(model.predict(X, client=missing), model.predict(X))


def test_fewer_means_than_clusters_are_clusters_each():
    model = KFed(9, random_state=0).fit(CLIENTS)
    assert_allclose(np.sort(model.means_.ravel()), [0.0, 1.0, 10.0, 30.0])


def test_a_client_alone_has_the_clusters_of_k_means():
    rng = np.random.default_rng(0)
    X = np.repeat(10.0 * np.eye(3), 30, axis=0) + rng.normal(size=(90, 3))
    client = Client("a", Rows.from_array(X), np.full(3, 1 / 3), 0)
    means = respond(CentresRequest(), client).means
    by_class = X.reshape(3, 30, 3).mean(axis=1)
    assert_allclose(means[np.lexsort(means.T)], by_class[np.lexsort(by_class.T)])


def test_the_start_projects_on_the_top_singular_vectors():
    """Noise in other directions, however it splits the rows, does not matter."""
    rng = np.random.default_rng(0)
    X = np.zeros((80, 5))
    X[:40, 0], X[40:, 1] = 100.0, 100.0
    X[:, 2:] = rng.choice([-20.0, 20.0], (80, 3))
    start = spectral_start(Rows.from_array(X), 2, rng)
    assert_allclose(np.sort(start[:, 0]), [0.0, 100.0])


def test_where_no_row_is_clean_the_start_is_that_of_k_means():
    rows = Rows.from_array(np.array([[0.0], [4.0], [6.0], [10.0]]))
    # nu is 2 and 8; all rows are 2 from theirs, and the inner ones 4 from the other.
    assert_allclose(np.sort(spectral_start(rows, 2, np.random.default_rng(0)).ravel()), [0, 10])
    even = Rows.from_array(np.array([[0.0], [2.0]]))
    assert_allclose(spectral_start(even, 1, np.random.default_rng(0)), [[1.0]])


def test_farthest_first_takes_no_point_twice():
    points = np.array([[0.0], [1.0], [1.0]])
    assert_array_equal(farthest_first(points[:1], points, 3), [[0.0], [1.0]])

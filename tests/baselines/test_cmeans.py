from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris

from fedgem import InputError, LocalEngine
from fedgem.baselines.cmeans import CentresRequest, FederatedCMeans, c_step
from fedgem.client import Client, respond
from fedgem.rows import Rows

from ..strategies import rows_and_means

FUZZINESSES = st.sampled_from([1.0, 1.2, 2.0, 3.0])
IRIS, SPECIES = load_iris(return_X_y=True)
# Every client has some of the species, and none has as many rows as another.
PARTS = {"a": IRIS[:20], "b": IRIS[20:90], "c": IRIS[90:]}


def central_fuzzy(X, centres, fuzziness):
    """Return the next centres, written as the formulas are, for all rows in one place."""
    distances = np.linalg.norm(X[:, None] - centres, axis=2)
    ratios = (distances[:, :, None] / distances[:, None, :]) ** (2 / (fuzziness - 1))
    weights = (1 / ratios.sum(axis=2)) ** fuzziness
    return np.stack([np.average(X, axis=0, weights=w) for w in weights.T])


def test_one_reply_by_hand():
    client = Client("a", Rows.from_array(np.array([[1.0], [3.0]])), np.ones(1), seed=0)
    request = CentresRequest(np.array([[0.0], [4.0]]), 2.0)
    statistics = respond(request, client).statistics  # the memberships are 0.9 and 0.1, and so on
    assert_allclose(statistics.counts, [0.82, 0.82])
    assert_allclose(statistics.means, [[(0.81 + 0.03) / 0.82], [(0.01 + 2.43) / 0.82]])


@pytest.mark.parametrize("fuzziness", [1.5, 2.0])
def test_fuzzy_centres_are_those_of_all_rows_in_one_place(fuzziness):
    def centres_after(n):
        return FederatedCMeans(3, fuzziness=fuzziness, max_iter=n, random_state=0).fit(PARTS).means_

    centres = centres_after(1)
    for _ in range(10):
        centres = central_fuzzy(IRIS, centres, fuzziness)
    assert_allclose(centres_after(11), centres, rtol=1e-12)


def test_hard_centres_are_those_of_lloyd_on_all_rows_in_one_place():
    X = np.random.default_rng(0).uniform(size=(2000, 2))

    def centres_after(n):
        model = FederatedCMeans(9, fuzziness=1.0, max_iter=n, random_state=0)
        return model.fit(X, clients=np.digitize(X[:, 0], [0.3, 0.5])).means_

    first = centres_after(1)
    lloyd = KMeans(9, init=first, n_init=1, max_iter=4, tol=0).fit(X)
    assert np.abs(lloyd.cluster_centers_ - first).max() > 0.01
    assert_allclose(centres_after(5), lloyd.cluster_centers_, rtol=1e-12)


def test_iris_has_the_published_fuzzy_centres_and_their_16_errors():
    model = FederatedCMeans(3, max_iter=100, random_state=0).fit(IRIS, clients=np.arange(150) % 4)
    order = model.means_[:, 0].argsort()
    published = [  # by the R package ppclust, in its documentation
        [5.003966, 3.414089, 1.482816, 0.2535463],
        [5.888932, 2.761069, 4.363952, 1.3973150],
        [6.775011, 3.052382, 5.646782, 2.0535467],
    ]
    assert_allclose(model.means_[order], published, atol=1e-6)
    assert (order.argsort()[model.labels_] != SPECIES).sum() == 16


def test_iris_has_the_least_sum_of_squares():
    model = FederatedCMeans(3, fuzziness=1.0, random_state=0).fit(PARTS)
    assert_allclose(c_step(Rows.from_array(IRIS), model.means_, 1.0)[1], 78.85, atol=0.01)


@given(rows_and_means(), FUZZINESSES, st.data())
def test_replies_add_up_to_that_of_all_rows(drawn, fuzziness, data):
    X, means = drawn
    at = data.draw(st.integers(0, len(X)))
    split = [part for part in (X[:at], X[at:]) if len(part)]
    parts = [c_step(Rows.from_array(part), means, fuzziness) for part in split]
    whole, objective = c_step(Rows.from_array(X), means, fuzziness)
    total = reduce(add, (statistics for statistics, _ in parts))
    scale = np.abs(X).max() + np.abs(means).max()
    assert_allclose(total.counts, whole.counts, rtol=1e-9, atol=1e-12)
    heavy = whole.counts > 1e-9
    assert_allclose(total.means[heavy], whole.means[heavy], atol=1e-9 * scale)
    assert_allclose(sum(o for _, o in parts), objective, rtol=1e-9)


@given(rows_and_means(), FUZZINESSES)
def test_the_objective_never_rises(drawn, fuzziness):
    X, means = drawn
    rows = Rows.from_array(X)
    statistics, before = c_step(rows, means, fuzziness)
    _, after = c_step(rows, statistics.means, fuzziness)
    assert after <= before * (1 + 1e-9) + 1e-12 * np.square(X).sum()


@given(rows_and_means())
def test_little_fuzziness_is_none(drawn):
    X, means = drawn
    squared = np.square(X[:, None] - means).sum(axis=2)
    if len(means) > 1:
        nearest = np.sort(squared, axis=1)
        X = X[nearest[:, 0] < 0.9 * nearest[:, 1]]
    if len(X):
        rows = Rows.from_array(X)
        hard, fuzzy = c_step(rows, means, 1.0)[0], c_step(rows, means, 1.001)[0]
        assert_allclose(fuzzy.counts, hard.counts, atol=1e-6)


def test_a_row_on_a_centre_belongs_to_it_alone():
    means = np.array([[0.0], [4.0]])
    statistics, _ = c_step(Rows.from_array(np.zeros((1, 1))), means, 2.0)
    assert_allclose(statistics.counts, [1.0, 0.0], atol=1e-300)


def test_a_centre_without_rows_stays():
    statistics, _ = c_step(Rows.from_array(np.zeros((2, 1))), np.array([[1.0], [9.0]]), 1.0)
    assert statistics.means.ravel().tolist() == [0.0, 9.0]


def test_clients_that_miss_rounds():
    model = FederatedCMeans(2, engine=LocalEngine(participation=0.5), random_state=0)
    model.fit({name: [[0.0], [0.5], [9.0], [9.5]] for name in "abc"})
    assert_allclose(np.sort(model.means_.ravel()), [0.25, 9.25], atol=0.01)


def test_what_is_wrong_is_said():
    with pytest.raises(InputError, match=r"fuzziness: found 0\.5, expected a number from 1"):
        FederatedCMeans(fuzziness=0.5).fit(PARTS)

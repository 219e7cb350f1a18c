import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedgem import InputError
from fedgem.baselines.ffcm import FFCM, FuzzyRequest, weighted_mean
from fedgem.baselines.fuzzy import fuzzy_step
from fedgem.client import Client, respond
from fedgem.gaussian.statistics import Statistics
from fedgem.rows import Rows


def test_a_client_goes_on_until_it_has_converged():
    X = np.random.default_rng(0).normal(size=(80, 2)) + np.repeat([[0, 0], [6, 6]], 40, axis=0)
    client = Client("a", Rows.from_array(X), np.ones(1), 0)
    reply = respond(FuzzyRequest(X[[0, 50]], 1000), client).statistics
    _, again, _ = fuzzy_step(client.rows, reply.means, 2.0)
    assert_allclose(again.means, reply.means, atol=1e-4)


def test_centres_without_support_stay():
    sent = [Statistics(np.array([1.0, 0.0]), np.array([[2.0], [5.0]]))] * 2
    assert_allclose(weighted_mean(sent, np.array([[0.0], [5.0]])).ravel(), [2.0, 5.0])


@pytest.mark.parametrize("average", [1, 2])
def test_alike_clients_find_what_one_of_them_would(average):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
    alone, three = (
        np.sort(FFCM(3, average=average, random_state=1).fit([X] * number).means_, axis=0)
        for number in (1, 3)
    )
    assert_allclose(three, alone, atol=1e-3)


def test_k_means_tells_clients_apart_where_the_mean_does_not():
    """Two clients with a cluster each that the other has not."""
    rng = np.random.default_rng(0)
    clients = [rng.normal(size=(40, 1)) + c for c in (0.0, 100.0)]
    means = FFCM(2, average=2, random_state=0).fit(clients).means_
    assert_allclose(np.sort(means.ravel()), [0, 100], atol=1)


def test_only_moments_centres_and_supports_leave_a_client():
    history = FFCM(5, max_iter=2, random_state=0).fit([[[0.0], [1.0]], [[4.0], [7.0]]]).history_
    assert [row.bytes_up["0"] for row in history] == [3 * 8, 10 * 8, 10 * 8]


def test_average_is_checked():
    with pytest.raises(InputError, match="average: found 3, expected 1 or 2"):
        FFCM(average=3).fit([[[0.0], [1.0]]])

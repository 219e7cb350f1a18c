import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedgem import InputError
from fedgem.baselines.fed_kmeans import FedKmeans, LloydRequest
from fedgem.client import Client, respond
from fedgem.rows import Rows


def test_by_hand():
    """Means 0.5 and 10.5 of two rows each, and 20 of four: the weights keep 20 apart.

    Joining 10.5 and 20 costs 120.3, joining 0.5 and 10.5 costs 100; without weights it would be
    45.1 and 50. Then a has one cluster, of mean 5.5, and the other is empty.
    """
    clients = {"a": [[0.0], [1.0], [10.0], [11.0]], "b": [[20.0]] * 4}
    model = FedKmeans(2, random_state=0).fit(clients)
    assert_allclose(np.sort(model.means_.ravel()), [5.5, 20.0])
    # Two means and counts from a in the first round, one afterwards.
    assert [row.bytes_up["a"] for row in model.history_[:2]] == [32, 16]
    assert len(model.history_) == 1 + 20


def test_empty_clusters_and_single_rows_stay_at_the_client():
    rows = Rows.from_array(np.array([[0.0], [1.0], [50.0]]))
    client = Client("a", rows, np.ones(1), 0)
    means = np.array([[90.0], [0.0], [49.0]])
    reply = respond(LloydRequest(3, means), client).statistics
    assert_allclose(reply.means, [[0.5]])
    assert_allclose(reply.counts, [2.0])


def test_separate_clusters_are_found_wherever_they_are():
    rng = np.random.default_rng(0)
    centres = 20.0 * np.eye(5)
    clients = [
        np.repeat(centres[[g, (g + 1) % 5]], 30, axis=0) + rng.normal(size=(60, 5))
        for g in range(5)
    ]
    means = FedKmeans(5, random_state=0).fit(clients).means_
    pooled = np.concatenate(clients)
    nearest = np.square(pooled[:, None] - centres).sum(axis=2).argmin(axis=1)
    expected = np.array([pooled[nearest == k].mean(axis=0) for k in range(5)])
    assert_allclose(means[np.lexsort(means.T)], expected[np.lexsort(expected.T)])


def test_nothing_to_send_is_said():
    with pytest.raises(InputError, match="no cluster of more than 1 sample"):
        FedKmeans(2).fit([[[0.0], [1.0]], [[5.0]]])

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose

from fedgem import LocalEngine
from fedgem.baselines.cmeans import FederatedCMeans
from fedgem.baselines.dual_decomposition import DualDecomposition, DualRequest, copies
from fedgem.client import Client, respond
from fedgem.rows import Rows

from ..strategies import rows_and_means

ONE = {"a": np.array([[0.0], [2.0]]), "b": np.array([[6.0]])}


@pytest.fixture(scope="module")
def blobs():
    """Clusters that lie apart, of which every client has all, though not in equal shares."""
    rng = np.random.default_rng(0)
    centres = 20.0 * np.eye(4)
    return {
        g: centres[rng.choice(4, size=80, p=rng.dirichlet(np.full(4, 5.0)))]
        + rng.normal(size=(80, 4))
        for g in range(5)
    }


def test_two_rounds_by_hand():
    model = DualDecomposition(1, max_iter=2, random_state=0).fit(ONE)
    assert_allclose(model.means_, [[8 / 3]])
    assert_allclose(model.objectives_, [(64 + 4 + 100) / 27] * 2)
    # Without multipliers the copies are 1 and 6. The step is a tenth of twice 1.5 rows.
    multiplier = 0.1 * 2 * 1.5 * (6 - 3.5)
    of_a = 2 - multiplier - multiplier**2 / 8
    of_b = 6 * multiplier - multiplier**2 / 4
    assert_allclose(model.dual_values_, [2 / 3, (of_a + of_b) / 3])


def test_one_cluster_has_no_gap():
    model = DualDecomposition(1, max_iter=200, random_state=0).fit(ONE)
    assert (np.diff(model.dual_values_) > 0).all()
    optimum = model.objectives_[0]
    assert 0.99 * optimum < model.dual_values_[-1] < optimum


def test_the_gap_closes_where_clusters_lie_apart(blobs):
    model = DualDecomposition(4, max_iter=60, random_state=0).fit(blobs)
    gaps = np.subtract(model.objectives_, model.dual_values_)
    assert (gaps > 0).all()
    assert gaps[-1] < 0.1 * gaps[0]
    assert (np.diff(model.dual_values_) > 0).all()
    lloyd = FederatedCMeans(4, fuzziness=1.0, random_state=0).fit(blobs)
    assert_allclose(model.means_, lloyd.means_)


@given(rows_and_means())
def test_a_client_never_ends_above_where_it_starts(drawn):
    X, means = drawn
    multipliers = np.random.default_rng(0).normal(size=means.shape) * np.ptp(X)
    client = Client("a", Rows.from_array(X), np.ones(1), seed=0)
    reply = respond(DualRequest(means, multipliers), client)
    counts = np.array(reply.statistics.counts)
    distances = np.square(X[:, None] - means).sum(axis=2).min(axis=1).sum()
    assert_allclose(reply.objective, distances, rtol=1e-9)
    assert counts.sum() == reply.n_rows == len(X)
    start = distances + (multipliers * means).sum()
    size = distances + np.abs(multipliers * means).sum()
    assert reply.lagrangian <= start + 1e-9 * size


def test_a_client_finds_the_least_lagrangian():
    client = Client("a", Rows.from_array(np.array([[0.0], [2.0], [9.0]])), np.ones(1), seed=0)
    multipliers = np.array([[1.0], [-2.0]])
    reply = respond(DualRequest(np.array([[0.0], [8.0]]), multipliers), client)
    assert_allclose(copies(reply.statistics, multipliers), [[1 - 1 / 4], [9 + 2 / 2]])
    grid = np.linspace(-5, 15, 401)
    distances = np.square(np.array([0.0, 2.0, 9.0])[:, None] - grid)
    pairs = np.minimum(distances[:, :, None], distances[:, None, :]).sum(axis=0)
    assert_allclose(reply.lagrangian, (pairs + grid[:, None] - 2 * grid).min())


def test_clients_that_miss_rounds(blobs):
    engine = LocalEngine(participation=0.6)
    model = DualDecomposition(4, engine=engine, random_state=0).fit(blobs)
    found = np.sort(model.means_.argmax(axis=1))
    assert found.tolist() == [0, 1, 2, 3]
    assert_allclose(model.means_.max(axis=1), 20.0, atol=1.0)

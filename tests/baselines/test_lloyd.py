import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from fedgem import rows as rows_module
from fedgem.baselines.lloyd import k_means, lloyd, lloyd_step
from fedgem.rows import Rows
from strategies import rows_and_means, seeds


@given(rows_and_means(), seeds)
def test_a_step_is_what_its_definition_says(drawn, seed):
    X, means = drawn
    weights = np.random.default_rng(seed).uniform(0.5, 2, len(X))
    statistics, inertia = lloyd_step(Rows.from_array(X), means, weights)
    scale = np.abs(X - X.mean(axis=0)).max() + np.abs(means - X.mean(axis=0)).max()
    squares = cdist(X, means, "sqeuclidean")
    assert_allclose(inertia, weights @ squares.min(axis=1), rtol=1e-9)
    assert_allclose(statistics.counts.sum(), weights.sum())
    total = statistics.counts[statistics.counts > 0] @ statistics.means[statistics.counts > 0]
    assert_allclose(total, weights @ X, atol=1e-9 * weights.sum() * scale, rtol=1e-9)
    assert_allclose(statistics.means[statistics.counts == 0], means[statistics.counts == 0])


@given(rows_and_means())
def test_lloyd_ends_where_a_step_changes_nothing(drawn):
    X, means = drawn
    rows = Rows.from_array(X)
    statistics, inertia = lloyd(rows, means)
    _, at_end = lloyd_step(rows, statistics.means)
    assert inertia <= lloyd_step(rows, means)[1]
    assert_allclose(at_end, inertia, rtol=1e-9)


@given(st.integers(1, 4), seeds)
def test_weights_count_as_copies(n_clusters, seed):
    rng = np.random.default_rng(seed)
    X, copies = rng.normal(size=(12, 2)), rng.integers(1, 4, 12)
    means = X[:n_clusters]
    weighted, inertia = lloyd_step(Rows.from_array(X), means, copies.astype(float))
    copied, same = lloyd_step(Rows.from_array(np.repeat(X, copies, axis=0)), means)
    assert_allclose(weighted.counts, copied.counts)
    assert_allclose(weighted.means, copied.means)
    assert_allclose(inertia, same)


def test_k_means_finds_what_scikit_learn_finds():
    rng = np.random.default_rng(0)
    X = np.repeat(10.0 * np.eye(4), 50, axis=0) + rng.normal(size=(200, 4))
    weights = rng.uniform(1, 3, 200)
    means = k_means(Rows.from_array(X), 4, rng, weights)
    known = KMeans(4, n_init=10, random_state=0).fit(X, sample_weight=weights).cluster_centers_
    assert_allclose(means[np.lexsort(means.T)], known[np.lexsort(known.T)])


def test_k_means_of_copies_has_no_more_means_than_distinct_rows():
    rows = Rows.from_array(np.array([[1.0], [1.0], [1.0], [2.0]]))
    assert sorted(k_means(rows, 3, np.random.default_rng(0)).ravel()) == [1.0, 2.0]


def test_blocks_add_up(monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 3))
    whole, inertia = lloyd_step(Rows.from_array(X), X[:4], X[:, 0] ** 2)
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 8 * 3 * 7)
    parts, same = lloyd_step(Rows.from_array(X), X[:4], X[:, 0] ** 2)
    assert_allclose(parts.means, whole.means)
    assert_allclose(same, inertia)

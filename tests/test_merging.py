from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedgem.merging import merge_components
from strategies import seeds


def pair_costs(counts, means, covariances, i, j, size_free):
    """The cost as it is defined, of one component with several."""
    total = counts[i] + counts[j]
    share = counts[j] / total
    step = means[j] - means[i]
    both = (
        covariances[i]
        + share[:, None, None] * (covariances[j] - covariances[i])
        + (share * (1 - share))[:, None, None] * step[:, :, None] * step[:, None, :]
    )
    log = np.linalg.slogdet(both)[1]
    own, other = np.linalg.slogdet(covariances[i])[1], np.linalg.slogdet(covariances[j])[1]
    costs = 0.5 * (counts[i] * (log - own) + counts[j] * (log - other))
    return (costs / (share * counts[i]) if size_free else costs), both


def assert_greedy(tree, counts, means, covariances, size_free, rtol=1e-8, atol=1e-7):
    """Replay a tree over the matrix of all pairs: every merge is the cheapest there is."""
    if size_free:
        atol *= max(1.0, 1.0 / counts.min())  # what dividing by h makes of rounding
    counts, means, covariances = counts.astype(float), means.copy(), covariances.copy()
    n = len(counts)
    matrix = np.full((n, n), np.inf)
    for i in range(n - 1):
        matrix[i, i + 1 :] = pair_costs(
            counts, means, covariances, i, np.arange(i + 1, n), size_free
        )[0]
    alive = np.ones(n, bool)
    for i, j, cost in zip(tree.first, tree.second, tree.costs, strict=True):
        assert i < j
        assert_allclose(cost, matrix[i, j], rtol=rtol, atol=atol)
        assert matrix[i, j] <= matrix.min() + atol + rtol * abs(matrix.min())
        covariances[i] = pair_costs(counts, means, covariances, i, np.array([j]), False)[1][0]
        means[i] += counts[j] / (counts[i] + counts[j]) * (means[j] - means[i])
        counts[i] += counts[j]
        alive[j] = False
        matrix[j], matrix[:, j] = np.inf, np.inf
        others = np.flatnonzero(alive & (np.arange(n) != i))
        if len(others):
            costs, _ = pair_costs(counts, means, covariances, i, others, size_free)
            matrix[np.minimum(i, others), np.maximum(i, others)] = costs


def draw(rng, n, d, *, n_clusters=None, fewest=1.0, most=500.0, thinnest=0.1):
    """Components about some centres, each with a covariance of its own."""
    centres = 3 * rng.normal(size=(n_clusters or 1 + n // 5, d))
    means = centres[rng.integers(len(centres), size=n)] + 0.2 * rng.normal(size=(n, d))
    factors = np.eye(d) + 0.3 * rng.normal(size=(n, d, d))
    factors *= rng.uniform(thinnest, 1.0, size=(n, d, 1))
    covariances = factors @ factors.transpose(0, 2, 1) + thinnest**2 * np.eye(d)
    counts = np.exp(rng.uniform(np.log(fewest), np.log(most), size=n))
    return counts, means, (covariances + covariances.transpose(0, 2, 1)) / 2


@given(seeds, st.integers(1, 40), st.integers(1, 9), st.booleans(), st.booleans())
def test_every_merge_is_the_cheapest(seed, n, d, tiny, size_free):
    rng = np.random.default_rng(seed)
    counts, means, covariances = draw(rng, n, d, fewest=1e-6 if tiny else 1.0)
    shift, scale = 100 * rng.normal(), 10.0 ** rng.integers(-3, 4)
    means, covariances = scale * (means + shift), scale**2 * covariances
    tree = merge_components(counts, means, covariances, size_free=size_free)
    assert_greedy(tree, counts, means, covariances, size_free)
    assert_array_equal(tree.n_clusters, np.arange(n, 0, -1))


@pytest.mark.parametrize(("n", "d"), [(500, 3), (300, 16), (120, 33)])
@pytest.mark.parametrize("size_free", [False, True])
def test_many_components(n, d, size_free):
    components = draw(np.random.default_rng(d), n, d, n_clusters=20)
    tree = merge_components(*components, size_free=size_free)
    assert_greedy(tree, *components, size_free)


@pytest.mark.parametrize("size_free", [False, True])
def test_nearly_singular_covariances(size_free):
    components = draw(np.random.default_rng(0), 100, 6, thinnest=1e-4)
    tree = merge_components(*components, size_free=size_free)
    assert_greedy(tree, *components, size_free, rtol=1e-5, atol=1e-4)


def test_components_that_coincide_cost_nothing_and_merge_in_order():
    counts, means, covariances = draw(np.random.default_rng(0), 12, 4)
    which = np.repeat(np.arange(12), 5)
    counts = np.random.default_rng(1).uniform(1, 50, size=60)  # does not matter
    tree = merge_components(counts, means[which], covariances[which])
    assert_array_equal(tree.costs[:48], 0.0)
    assert_array_equal(tree.first[:48], np.repeat(np.arange(0, 60, 5), 4))
    assert_array_equal(tree.second[:48], np.flatnonzero(np.arange(60) % 5))
    assert_array_equal(tree.labels(12), which)
    assert np.all(tree.costs[48:] > 0)


@pytest.mark.parametrize("size_free", [False, True])
def test_equal_costs_merge_in_order_of_their_names(size_free):
    """A regular grid: all neighbours are equally far apart."""
    means = np.arange(8.0)[:, None]
    tree = merge_components(np.full(8, 4.0), means, np.ones((8, 1, 1)), 4, size_free=size_free)
    assert_array_equal(tree.first, [0, 2, 4, 6])
    assert_array_equal(tree.second, [1, 3, 5, 7])


def test_an_invertible_map_changes_nothing():
    rng = np.random.default_rng(0)
    counts, means, covariances = draw(rng, 60, 5)
    into = rng.normal(size=(5, 5))
    tree = merge_components(counts, means, covariances)
    mapped = merge_components(counts, means @ into.T + 7, into @ covariances @ into.T)
    assert_array_equal(mapped.first, tree.first)
    assert_array_equal(mapped.second, tree.second)
    assert_allclose(mapped.costs, tree.costs, rtol=1e-8)


def test_more_components_than_a_task_takes_and_any_number_of_threads():
    rng = np.random.default_rng(0)
    centres = 10 * rng.normal(size=(30, 3))
    which = rng.integers(30, size=3000)
    components = (
        rng.uniform(20, 200, size=3000),
        centres[which] + 0.1 * rng.normal(size=(3000, 3)),
        np.tile(np.eye(3), (3000, 1, 1)) * rng.uniform(0.8, 1.2, size=(3000, 1, 1)),
    )
    alone = merge_components(*components, 30)
    with ThreadPoolExecutor(3) as pool:
        together = merge_components(*components, 30, pool=pool)
    assert_array_equal(together.first, alone.first)
    assert_array_equal(together.second, alone.second)
    assert_array_equal(together.costs, alone.costs)
    labels = alone.labels(30)
    assert all(len(np.unique(labels[which == k])) == 1 for k in range(30))


def test_stopping_early_is_the_start_of_the_whole_tree():
    components = draw(np.random.default_rng(0), 40, 2)
    whole, part = merge_components(*components), merge_components(*components, 10)
    assert_array_equal(part.first, whole.first[:30])
    assert_array_equal(part.labels(10), whole.labels(10))
    with pytest.raises(ValueError, match="n_clusters = 9, expected a number from 10 to 40"):
        part.labels(9)


def test_nothing_to_merge():
    components = draw(np.random.default_rng(0), 3, 2)
    assert len(merge_components(*components, 3).costs) == 0
    assert len(merge_components(*(x[:1] for x in components)).costs) == 0


def test_bad_components_are_named():
    counts, means, covariances = draw(np.random.default_rng(0), 5, 2)
    empty = counts.copy()
    empty[3] = 0
    with pytest.raises(ValueError, match=r"Component 3 has a count of 0\.0, expected more than 0"):
        merge_components(empty, means, covariances)
    with pytest.raises(ValueError, match="Found n_clusters = 0, expected at least 1"):
        merge_components(counts, means, covariances, 0)
    covariances[4] = [[1.0, 2.0], [2.0, 1.0]]
    with pytest.raises(ValueError, match="covariance of component 4 is not positive definite"):
        merge_components(counts, means, covariances)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2_contingency

from fedgem.grouping import apart, groupings, n_told_apart
from strategies import seeds


def random_counts(rng, n_clients, n_components):
    counts = rng.uniform(1, 50, size=(n_clients, n_components))
    counts[rng.random(counts.shape) < 0.3] = 0.0
    counts[0] += 1.0  # no component without rows
    return counts


@given(seeds, st.integers(1, 6), st.integers(2, 5))
def test_apart_is_half_the_g_statistic(seed, n_clients, n_components):
    counts = random_counts(np.random.default_rng(seed), n_clients, n_components)
    found = apart(counts)
    for a in range(n_components):
        for b in range(n_components):
            table = counts[:, [a, b]]
            table = table[table.sum(axis=1) > 0]
            if a == b:
                assert found[a, b] == np.inf
            elif len(table) == 1:  # of one client's rows nothing can be said
                assert_allclose(found[a, b], 0.0, atol=1e-6)
            else:
                g = chi2_contingency(table, correction=False, lambda_="log-likelihood").statistic
                assert_allclose(found[a, b], g / 2, rtol=1e-6, atol=1e-6)


def random_overlap(rng, counts):
    total = counts.sum(axis=0)
    return np.minimum.outer(total, total) * rng.uniform(0, 0.3, size=(len(total),) * 2)


@pytest.mark.parametrize("by", ["all", "row", "touch"])
@given(seed=seeds, n_clients=st.integers(1, 6), n_components=st.integers(1, 8))
def test_groupings_are_nested_and_the_same_each_time(by, seed, n_clients, n_components):
    rng = np.random.default_rng(seed)
    counts = random_counts(rng, n_clients, n_components)
    overlap = random_overlap(rng, counts)
    before = counts.copy(), overlap.copy()
    found = groupings(counts, overlap, 1, by)
    assert sorted(found) == list(range(1, n_components + 1))
    for n, labels in found.items():
        assert_array_equal(np.unique(labels), np.arange(n))
        if n > 1:  # whoever is together stays together
            pairs = np.unique(np.stack([labels, found[n - 1]]), axis=1)
            assert pairs.shape[1] == n
    again = groupings(counts, overlap, 1, by)
    for n, labels in found.items():
        assert_array_equal(again[n], labels)
    assert_array_equal(counts, before[0])
    assert_array_equal(overlap, before[1])


def test_it_ends_with_the_fewest():
    counts = np.ones((2, 5))
    assert sorted(groupings(counts, np.eye(5), 3, "all")) == [3, 4, 5]


def test_what_goes_together_is_grouped_first():
    """0 and 1 occur in the same proportion everywhere, 2 does not."""
    counts = np.array([[10.0, 20.0, 0.0], [30.0, 60.0, 50.0], [0.0, 0.0, 40.0]])
    assert_array_equal(groupings(counts, np.eye(3), 2, "all")[2], [0, 0, 1])


def test_what_touches_is_grouped_where_proportions_do_not_tell():
    """One client: proportions say nothing, rows between components do."""
    counts = np.array([[30.0, 40.0, 50.0]])
    overlap = np.array([[20.0, 1e-9, 1e-9], [1e-9, 30.0, 9.0], [1e-9, 9.0, 40.0]])
    assert_array_equal(groupings(counts, overlap, 2, "touch")[2], [0, 1, 1])


def test_proportions_speak_against_what_touches():
    """1 and 2 touch a little more than 0 and 1, but no client has both alike."""
    counts = np.array([[50.0, 50.0, 0.0], [40.0, 40.0, 0.0], [5.0, 5.0, 90.0], [0.0, 0.0, 80.0]])
    overlap = np.array([[80.0, 4.0, 0.0], [4.0, 80.0, 6.0], [0.0, 6.0, 160.0]])
    assert_array_equal(groupings(counts, overlap, 2, "touch")[2], [0, 0, 1])


@given(seeds, st.integers(2, 4), st.integers(1, 3))
def test_as_many_groups_are_told_apart_as_are_found_independently(seed, n_clusters, n_parts):
    rng = np.random.default_rng(seed)
    n_clients = 30
    has = rng.random((n_clients, n_clusters)) < 0.5
    has[:n_clusters] |= np.eye(n_clusters, dtype=bool)
    shares = rng.dirichlet(np.full(n_parts, 20.0), size=n_clusters)
    counts = np.concatenate(
        [rng.multinomial(200 * has[:, k], shares[k]) for k in range(n_clusters)], axis=1
    )
    n_rows = counts.sum(axis=1)
    assert n_told_apart(counts.astype(float), n_rows) == n_clusters


@pytest.mark.parametrize("n_clients", [1, 2, 20])
def test_clients_that_are_alike_tell_nothing_apart(n_clients):
    counts = np.random.default_rng(0).multinomial(300, [0.5, 0.3, 0.2], size=n_clients)
    assert n_told_apart(counts.astype(float), counts.sum(axis=1)) == 1

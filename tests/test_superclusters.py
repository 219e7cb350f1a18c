import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedgem.disjoint_set import labels_of
from fedgem.superclusters import heuristic_radii, merge_tree, update
from strategies import federations


def pairwise_update(means, squared_radii, owners):
    """Algorithm 2 as it is printed, pair by pair, with the sign of nu* put right."""
    radii = np.sqrt(squared_radii)
    sets = [[mean] for mean in means]
    pairs = []
    for i, p in itertools.combinations(range(len(means)), 2):
        width = np.linalg.norm(means[i] - means[p])
        if owners[i] == owners[p] or width > radii[i] + radii[p]:
            continue
        share = np.clip(0.5, 1 - radii[p] / width, radii[i] / width) if width > 0 else 0.0
        meeting = means[i] + share * (means[p] - means[i])
        sets[i].append(meeting)
        sets[p].append(meeting)
        pairs.append((i, p))
    first, second = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    return np.array([np.mean(s, axis=0) for s in sets]), labels_of(len(means), first, second)


def cut_pairwise(means, squared_radii, owners):
    return pairwise_update(means, squared_radii, owners)[1]


@given(federations())
def test_update_agrees_with_the_pairwise_definition(federation):
    means, labels = update(*federation)
    expected_means, expected_labels = pairwise_update(*federation)
    assert_allclose(means, expected_means, atol=1e-12)
    assert_array_equal(labels, expected_labels)


@given(federations(), st.booleans())
def test_new_means_lie_in_their_uncertainty_sets(federation, cannot_link):
    means, squared_radii, owners = federation
    new, _ = update(means, squared_radii, owners, cannot_link=cannot_link)
    moved = np.linalg.norm(new - means, axis=1)
    assert np.all(moved <= np.sqrt(squared_radii) * (1 + 1e-12) + 1e-15)


def test_meeting_point_lies_in_both_balls_and_the_printed_sign_puts_it_outside():
    """Erratum 3."""
    means, radii = np.array([[0.0], [3.0]]), np.array([1.0, 2.5])
    new, _ = update(means, radii**2, np.array([0, 1]))
    meeting = 2 * new - means  # T is {own mean, nu*}
    assert_allclose(meeting[0], meeting[1])
    assert np.all(np.abs(meeting - means).ravel() <= radii)
    printed = means[0] + np.clip(0.5, 1 - 2.5 / 3, 1 / 3) * (means[0] - means[1])
    assert abs(printed - means[1]) > radii[1]


def test_a_meeting_point_of_coinciding_means_is_the_mean():
    new, labels = update(np.zeros((2, 2)), np.array([1.0, 4.0]), np.array([0, 1]))
    assert_array_equal(new, np.zeros((2, 2)))
    assert_array_equal(labels, [0, 0])


def test_components_of_one_client_are_not_compared():
    """Erratum 4."""
    means, wide = np.array([[0.0], [0.1]]), np.ones(2)
    assert_array_equal(update(means, wide, np.array([0, 0]))[1], [0, 1])
    assert_array_equal(update(means, wide, np.array([0, 1]))[1], [0, 0])


def test_components_of_one_client_meet_through_another_unless_forbidden():
    """Erratum 4."""
    means, squared_radii = np.array([[0.0], [2.0], [0.9]]), np.full(3, 0.36)
    owners = np.array([0, 0, 1])
    assert_array_equal(update(means, squared_radii, owners)[1], [0, 0, 0])
    new, labels = update(means, squared_radii, owners, cannot_link=True)
    assert_array_equal(labels, [0, 1, 0])  # the closer pair counts
    assert_array_equal(new[1], means[1])  # the refused one adds nothing to T


@given(federations(), st.floats(0.0, 30.0))
def test_cutting_the_tree_equals_overlaps_at_that_upsilon(federation, upsilon):
    means, scales, owners = federation
    tree = merge_tree(means, scales, owners)
    # Equality at the very threshold is a matter of rounding: step aside from it.
    if tree.costs.size and np.any(np.isclose(tree.costs, upsilon, rtol=1e-9, atol=1e-12)):
        upsilon = upsilon * (1 + 1e-6) + 1e-9
    assert_array_equal(tree.cut(upsilon), cut_pairwise(means, upsilon * scales, owners))


@given(federations())
def test_tree_curve_is_monotone_and_complete(federation):
    tree = merge_tree(*federation)
    assert np.all(np.diff(tree.costs) >= 0)
    for i, cost in enumerate(tree.costs):
        if np.isfinite(cost) and (i + 1 == len(tree.costs) or tree.costs[i + 1] > cost):
            assert tree.cut(cost).max() + 1 == tree.n_clusters[i + 1]


@given(federations(), st.floats(0.0, 30.0))
def test_cannot_link_keeps_siblings_apart(federation, upsilon):
    means, scales, owners = federation
    labels = merge_tree(means, scales, owners, cannot_link=True).cut(upsilon)
    for cluster in range(labels.max() + 1):
        members = owners[labels == cluster]
        assert len(np.unique(members)) == len(members)


@pytest.mark.parametrize(("n", "d"), [(2000, 2), (1500, 16)])
def test_tree_is_minimal_on_clustered_points(n, d):
    """Against Prim's algorithm over all pairs."""
    rng = np.random.default_rng(n)
    means = rng.normal(size=(20, d))[rng.integers(20, size=n)] + 0.02 * rng.normal(size=(n, d))
    scales, owners = rng.uniform(0.1, 2.0, n), rng.integers(n // 10, size=n)
    root = np.sqrt(scales)
    joined, nearest, lengths = np.zeros(n, bool), np.full(n, np.inf), []
    last = 0
    for _ in range(n - 1):
        joined[last] = True
        width = np.linalg.norm(means - means[last], axis=1) / (root + root[last])
        width[owners == owners[last]] = np.inf
        nearest = np.minimum(nearest, width)
        last = int(np.where(joined, np.inf, nearest).argmin())
        lengths.append(nearest[last])
    assert_allclose(merge_tree(means, scales, owners).costs, np.sort(lengths) ** 2, rtol=1e-9)


def test_points_that_no_split_separates():
    means = np.repeat([[0.0, 0.0], [1.0, 1.0]], 100, axis=0)
    owners = np.arange(200)
    tree = merge_tree(means, np.ones(200), owners)
    assert np.count_nonzero(tree.costs) == 1
    assert update(means, np.zeros(200), owners)[1].max() == 1


def test_cannot_link_says_when_there_are_too_many_components():
    means = np.zeros((5000, 1))
    with pytest.raises(ValueError, match="found 5000 components, expected at most 4096"):
        merge_tree(means, np.ones(5000), np.arange(5000), cannot_link=True)


def test_heuristic_radii_are_the_papers_formula():
    means = np.array([[0.0], [3.0], [10.0], [20.0], [21.0]])
    owners, weights = np.array([0, 0, 0, 1, 1]), np.array([0.5, 0.25, 0.25, 0.5, 0.5])
    radii = heuristic_radii(means, weights, owners, np.array([100, 400]))
    assert_allclose(radii, [3 / (0.5 * 10), 3 / 2.5, 3 / 2.5, 1 / 10, 1 / 10])


def test_a_client_with_one_component_takes_the_median_distance():
    means, owners = np.array([[0.0], [2.0], [7.0]]), np.array([0, 0, 1])
    radii = heuristic_radii(means, np.array([0.5, 0.5, 1.0]), owners, np.array([4, 16]))
    assert_allclose(radii, [2, 2, 0.5])
    lonely = heuristic_radii(means[:1], np.ones(1), owners[:1], np.array([4]))
    assert_array_equal(lonely, [0])


def test_the_path_says_what_a_forbidden_merge_would_cost():
    """Two clients with the same two clusters: the third merge would join siblings."""
    means, owners = np.array([[0.0], [10.0], [1.0], [11.0]]), np.array([0, 0, 1, 1])
    tree = merge_tree(means, np.ones(4), owners, cannot_link=True)
    assert_allclose(tree.costs, [0.25, 0.25])
    assert_allclose(tree.next_cost, (9.0 / 2) ** 2)  # from 1 to 10
    assert merge_tree(means, np.ones(4), owners).next_cost == np.inf

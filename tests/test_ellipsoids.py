"""Uncertainty sets that are ellipsoids: what they are, where they meet, and what training does."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedgem.ellipsoids import bounding_balls, contacts, meetings
from fedgem.gaussian.covariances import Gaussians, squared_distances_to_own
from fedgem.gaussian.density import log_joint
from fedgem.superclusters import update
from fedgem.uncertainty import squared_radii
from strategies import covariances_of_type, federations, seeds


def ellipsoids(seed, n, d, form):
    """Centres, covariances and radii of mixed sizes, some of them zero."""
    rng = np.random.default_rng(seed)
    covariances = covariances_of_type(form, n, d, rng)
    covariances = covariances * rng.lognormal(size=n).reshape(-1, *(1,) * (covariances.ndim - 1))
    radii = rng.exponential(rng.choice([0.1, 1.0]), size=n)
    radii[rng.random(n) < 0.1] = 0.0
    return rng.normal(size=(n, d)), covariances, radii, rng.integers(4, size=n)


def own_distances(points, means, covariances, form):
    return np.sqrt(squared_distances_to_own(points, Gaussians(means, covariances, form)))


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical", "identity"])
@settings(max_examples=20)
@given(seed=seeds)
def test_the_set_is_exactly_where_q_is_no_lower(covariance_type, seed):
    """Random means just inside never lower Q; just outside the same ones all do."""
    rng = np.random.default_rng(seed)
    n, d = 25, 3
    X, gamma, previous = rng.normal(size=(n, d)), rng.random(n), rng.normal(size=(1, d))
    covariance = covariances_of_type(covariance_type, 1, d, rng)
    at = Gaussians(previous, covariance, covariance_type)
    maximiser = (gamma @ X / gamma.sum())[None]
    radius = np.sqrt(squared_radii(maximiser, at)[0])
    directions = rng.normal(size=(60, d))
    about = Gaussians(maximiser, covariance, covariance_type)
    lengths = [np.sqrt(squared_distances_to_own(maximiser + u, about)[0]) for u in directions]
    surface = radius * directions / np.array(lengths)[:, None]

    def q(mean):
        return gamma @ log_joint(X, Gaussians(mean, covariance, covariance_type), np.zeros(1))

    floor = q(previous)
    assert all(q(maximiser + (1 - 1e-6) * step) >= floor for step in surface)
    assert all(q(maximiser + (1 + 1e-6) * step) < floor for step in surface)


@pytest.mark.parametrize("form", ["full", "diag"])
@settings(max_examples=50)
@given(seed=seeds, d=st.integers(1, 5), cannot_link=st.booleans())
def test_new_means_lie_in_their_own_ellipsoids(form, seed, d, cannot_link):
    means, covariances, radii, owners = ellipsoids(seed, 12, d, form)
    new, _ = update(means, radii**2, owners, covariances, cannot_link=cannot_link)
    assert np.all(own_distances(new, means, covariances, form) <= radii * (1 + 1e-9) + 1e-12)


@pytest.mark.parametrize("form", ["full", "diag"])
@settings(max_examples=50)
@given(seed=seeds, d=st.integers(1, 4))
def test_meeting_points_lie_in_both(form, seed, d):
    means, covariances, radii, _ = ellipsoids(seed, 2, d, form)
    new, labels = update(means, radii**2, np.array([0, 1]), covariances)
    if labels.max() == 1:
        assert_array_equal(new, means)
        return
    meeting = 2 * new - means  # T is {own mean, meeting point}
    assert_allclose(meeting[0], meeting[1], atol=1e-9)
    within = own_distances(meeting, means, covariances, form)
    assert np.all(within <= radii * (1 + 1e-9) + 1e-9)


def nearest_to_both(means, covariances, radii):
    """The least factor on both radii at which the ellipsoids share a point, by CVXPY."""
    point, factor = cp.Variable(means.shape[1]), cp.Variable()
    inverse_factors = [np.linalg.inv(np.linalg.cholesky(c)) for c in covariances]
    reached = [
        cp.norm(inverse @ (point - mean)) <= factor * radius
        for inverse, mean, radius in zip(inverse_factors, means, radii, strict=True)
    ]
    cp.Problem(cp.Minimize(factor), reached).solve(solver=cp.CLARABEL)
    return factor.value


def test_overlaps_and_contacts_are_those_of_a_cone_programme():
    first, second = np.array([0]), np.array([1])
    overlapping = 0
    for seed in range(40):
        means, covariances, radii, _ = ellipsoids(seed, 2, 1 + seed % 5, "full")
        radii = radii + 0.2
        factor = nearest_to_both(means, covariances, radii)
        assert_allclose(contacts(means, covariances, radii, first, second), factor, rtol=1e-5)
        found = meetings(means, covariances, radii, first, second)[0] >= 0
        assert found == (factor <= 1)
        overlapping += found
    assert 5 < overlapping < 35


def test_the_contact_is_perrams_and_wertheims():
    """max over s of s (1 - s) D' [(1 - s) A + s B]^-1 D, the square of the factor."""
    for seed in range(10):
        means, covariances, radii, _ = ellipsoids(seed, 2, 3, "full")
        radii = radii + 0.2
        A, B = radii[:, None, None] ** 2 * covariances
        step = means[1] - means[0]
        shares = np.linspace(0, 1, 5001)
        most = max(s * (1 - s) * step @ np.linalg.solve((1 - s) * A + s * B, step) for s in shares)
        found = contacts(means, covariances, radii, np.array([0]), np.array([1]))
        assert_allclose(found**2, most, rtol=1e-5)


@pytest.mark.parametrize("form", ["full", "diag"])
@settings(max_examples=50)
@given(federations(), st.booleans(), st.sampled_from([1.0, 7.0]))
def test_balls_meet_in_the_papers_point(form, federation, cannot_link, variance):
    means, squared, owners = federation
    n, d = means.shape
    unit = {"full": np.tile(variance * np.eye(d), (n, 1, 1)), "diag": np.full((n, d), variance)}
    expected, expected_labels = update(means, squared * variance, owners, cannot_link=cannot_link)
    found, labels = update(means, squared, owners, unit[form], cannot_link=cannot_link)
    # Balls that just touch are a matter of rounding.
    if np.array_equal(labels, expected_labels):
        assert_allclose(found, expected, atol=1e-9)
    else:
        radii = np.sqrt(squared * variance)
        widths = np.linalg.norm(means[:, None] - means, axis=2)
        assert np.any(np.isclose(widths, radii[:, None] + radii, rtol=1e-9))


def test_one_variance_each_makes_balls():
    means, radii = np.array([[0.0], [3.0]]), np.array([1.0, 1.0])
    owners = np.array([0, 1])
    apart = update(means, radii, owners, np.array([1.0, 1.0]))[1]
    together, labels = update(means, radii, owners, np.array([4.0, 1.0]))
    assert_array_equal(apart, [0, 1])
    assert_array_equal(labels, [0, 0])
    assert_allclose(together.ravel(), [1.0, 2.5])  # they touch at 2


@pytest.mark.parametrize("form", ["full", "diag"])
@settings(max_examples=50)
@given(seed=seeds, n=st.integers(2, 30), d=st.integers(1, 4))
def test_no_overlap_is_missed_whatever_the_scales(form, seed, n, d):
    means, covariances, radii, owners = ellipsoids(seed, n, d, form)
    units = 10.0 ** np.random.default_rng(seed).integers(-3, 4, size=d)
    means = means * units + 5 * units
    covariances = covariances * (np.outer(units, units) if form == "full" else units**2)
    first, second = np.triu_indices(n, 1)
    apart = owners[first] != owners[second]
    first, second = first[apart], second[apart]
    overlap = meetings(means, covariances, radii, first, second) >= 0
    _, labels = update(means, radii**2, owners, covariances)
    assert np.all(labels[first[overlap]] == labels[second[overlap]])
    points, reaches = bounding_balls(means, covariances, radii)
    widths = np.linalg.norm(points[first] - points[second], axis=1)
    assert np.all(widths[overlap] <= (reaches[first] + reaches[second])[overlap])


def test_siblings_stay_apart_and_the_closest_pair_counts():
    means = np.array([[0.0, 0.0], [2.0, 0.0], [0.9, 0.0]])
    covariances = np.tile([1.0, 4.0], (3, 1))
    owners = np.array([0, 0, 1])
    new, labels = update(means, np.full(3, 0.36), owners, covariances, cannot_link=True)
    assert_array_equal(labels, [0, 1, 0])
    assert_array_equal(new[1], means[1])


@settings(max_examples=20)
@given(seed=seeds)
def test_radii_of_zero_make_points(seed):
    means, covariances, radii, _ = ellipsoids(seed, 2, 2, "full")
    radii[0] = 0.0
    inside = own_distances(means[:1], means[1:], covariances[1:], "full")[0] <= radii[1]
    new, labels = update(means, radii**2, np.array([0, 1]), covariances)
    assert_array_equal(labels, [0, 0] if inside else [0, 1])
    assert_array_equal(new[0], means[0])

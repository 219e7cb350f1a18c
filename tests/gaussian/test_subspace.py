import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from fedgem.gaussian.statistics import Statistics
from fedgem.gaussian.subspace import LEFT_OUT, principal, resolution, units_of, whole
from strategies import seeds


def random_total(rng, n_features, scale):
    """The statistics of rows, of which some directions carry next to nothing."""
    factor = rng.normal(size=(n_features, n_features)) * np.logspace(0, -2, n_features)
    covariance = (factor @ factor.T) * np.outer(scale, scale)
    mean = rng.normal(size=n_features) * scale
    return Statistics(np.array([50.0]), mean[None], (covariance + covariance.T)[None] / 2)


@given(seeds, st.integers(1, 7), st.integers(0, 6), st.booleans())
def test_coordinates_and_rest_make_the_whole_density(seed, n_features, decades, mixed):
    """With the pooled covariance, what is left out is independent of what is kept."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** (rng.uniform(-decades, decades, n_features) if mixed else float(decades))
    scale = scale * np.ones(n_features)
    total = random_total(rng, n_features, scale)
    subspace = principal(total)
    mean, covariance = total.means[0], total.covariances[0]
    X = mean + rng.normal(size=(9, n_features)) @ np.linalg.cholesky(covariance).T
    coordinates = subspace.project(X)
    r = coordinates.shape[1]
    kept = subspace.basis.T @ covariance @ subspace.basis
    found = multivariate_normal(np.zeros(r), kept).logpdf(coordinates) + subspace.log_rest(X)
    # In units of the spreads, where SciPy can tell the matrix from a singular one.
    spread = np.sqrt(np.diagonal(covariance))
    scaled = covariance / np.outer(spread, spread)
    whole_density = multivariate_normal(np.zeros(n_features), scaled)
    expected = whole_density.logpdf((X - mean) / spread) - np.log(spread).sum()
    assert_allclose(found, expected, rtol=1e-6, atol=1e-4)


@given(seeds, st.integers(1, 7))
def test_directions(seed, n_features):
    rng = np.random.default_rng(seed)
    total = random_total(rng, n_features, np.ones(n_features))
    subspace = principal(total)
    assert_allclose(subspace.back @ subspace.basis, np.eye(subspace.basis.shape[1]), atol=1e-9)
    kept = np.trace(subspace.basis.T @ total.covariances[0] @ subspace.basis)
    every = np.trace(total.covariances[0])
    assert kept >= (1 - LEFT_OUT) * every * (1 - 1e-9)
    assert_allclose(kept + np.trace(subspace.rest_covariance), every, rtol=1e-6)
    for direction in subspace.basis.T:  # whichever sign LAPACK chose
        assert direction[np.abs(direction).argmax()] > 0


def test_directions_that_carry_next_to_nothing_are_left_out():
    total = Statistics(np.array([9.0]), np.zeros((1, 3)), np.diag([1.0, 4.0, 1e-3])[None])
    assert_allclose(principal(total).basis, [[0, 1], [1, 0], [0, 0]])


@pytest.mark.parametrize("covariance", [np.zeros((2, 2)), np.diag([0.0, 4.0]), np.ones((2, 2))])
def test_what_does_not_vary(covariance):
    subspace = principal(Statistics(np.array([9.0]), np.ones((1, 2)), covariance[None]))
    assert subspace.basis.shape == (2, 1)
    assert np.isfinite(subspace.log_rest(np.ones((1, 2)))).all()
    assert_allclose(
        subspace.back.T @ (subspace.basis.T @ covariance @ subspace.basis) @ subspace.back,
        covariance,
        atol=1e-12,
    )


def test_features_that_share_no_unit_are_each_taken_in_their_own():
    rng = np.random.default_rng(0)
    total = random_total(rng, 4, np.array([1e-6, 1e-3, 1.0, 1e6]))
    spread = np.sqrt(np.diagonal(total.covariances[0]))
    alike = Statistics(
        total.counts, total.means / spread, total.covariances / np.outer(spread, spread)
    )
    X = total.means + rng.normal(size=(5, 4)) * spread
    assert_allclose(principal(total).project(X), principal(alike).project(X / spread), atol=1e-9)


def test_units():
    assert_array_equal(units_of(np.diag([1.0, 1e5])), [1.0, 1.0])
    assert_array_equal(units_of(np.diag([1.0, 1e8])), [1.0, 1e4])
    assert_array_equal(units_of(np.diag([0.0, 1.0, 1e8])), [1.0, 1.0, 1e4])
    assert_array_equal(units_of(np.diag([0.0, 1e8])), [1.0, 1.0])


def test_densities_in_units_are_those_of_the_rows():
    X = np.array([[0.1, 30.0], [-0.2, 50.0]])
    units = np.array([0.1, 100.0])
    subspace = whole(units)
    found = multivariate_normal(np.zeros(2)).logpdf(subspace.project(X)) + subspace.log_rest(X)
    expected = multivariate_normal(np.zeros(2), np.diag(np.square(units))).logpdf(X)
    assert_allclose(found, expected)
    assert_allclose(subspace.project(X) @ subspace.back, X)


@given(seeds, st.sampled_from([0.25, 1.0, 8.0]))
def test_resolution_is_the_variance_of_rounding(seed, step):
    """Of rows that were rounded so coarsely that every step occurs."""
    X = np.random.default_rng(seed).uniform(0, 6 * step, size=(2000, 1))
    rounded = np.round(X / step) * step
    assert_allclose(resolution(rounded), [step**2 / 12])
    assert_allclose(np.var(X - rounded), step**2 / 12, rtol=0.2)


def test_resolution_of_what_does_not_vary_or_never_repeats():
    X = np.column_stack([np.full(1000, 3.0), np.random.default_rng(0).normal(size=1000)])
    found = resolution(X)
    assert found[0] == 0.0
    assert 0 < found[1] < 1e-5

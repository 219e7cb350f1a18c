import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedgem.gaussian.covariances import Gaussians, log_determinants, matrices
from fedgem.gaussian.shrinkage import log_prior, project, shrink
from strategies import covariances_of_type, seeds

TYPES = ["full", "tied", "diag", "spherical"]
K, D = 3, 4


def random(covariance_type, rng, n_components=K):
    """Covariances of a type, and the same in the form of `Statistics`."""
    covariances = covariances_of_type(covariance_type, n_components, D, rng)
    return covariances, covariances[None] if covariance_type == "tied" else covariances


def objective(counts, means, raw, covariances, covariance_type, prior, strength):
    """The terms of Q that hold the covariances, plus the prior's."""
    some = Gaussians(means, covariances, covariance_type)
    logs = log_determinants(some)
    as_matrices = matrices(Gaussians(means, raw, covariance_type))
    traces = np.trace(np.linalg.solve(matrices(some), as_matrices), axis1=1, axis2=2)
    return -0.5 * counts @ (logs + traces) + log_prior(some, prior, strength)


@pytest.mark.parametrize("covariance_type", TYPES)
@given(seed=seeds, strength=st.sampled_from([0.5, 4.0, 300.0]))
def test_shrunk_covariances_maximise_the_penalised_objective(covariance_type, seed, strength):
    rng = np.random.default_rng(seed)
    counts, means = 30 * rng.random(K), rng.normal(size=(K, D))
    raw, statistics = random(covariance_type, rng)
    prior = project(covariances_of_type("tied", 1, D, rng), covariance_type)
    best = shrink(counts, statistics, prior, strength)
    best = best[0] if covariance_type == "tied" else best
    rest = counts, means, raw
    most = objective(*rest, best, covariance_type, prior, strength)
    other, _ = random(covariance_type, rng)
    for step in (1e-3, 0.1, 1.0):
        moved = (1 - step) * best + step * other
        assert objective(*rest, moved, covariance_type, prior, strength) <= most + 1e-9


@pytest.mark.parametrize("covariance_type", TYPES)
def test_rows_of_the_prior_that_were_added_would_give_the_same(covariance_type):
    rng = np.random.default_rng(0)
    _, raw = random(covariance_type, rng)
    prior = project(covariances_of_type("tied", 1, D, rng), covariance_type)
    counts = np.array([0.0, 2.0, 7.0])
    found = shrink(counts, raw, prior, 5.0)
    if covariance_type == "tied":
        assert_allclose(found, (9 * raw + 5 * prior) / 14)
    else:
        for k, n in enumerate(counts):
            assert_allclose(found[k], (n * raw[k] + 5 * prior) / (n + 5))


def test_a_prior_for_each_component():
    found = shrink(np.ones(2), np.zeros((2, 3)), np.array([[2.0], [4.0]]) * np.ones(3), 1.0)
    assert_array_equal(found, [[1.0] * 3, [2.0] * 3])


def test_no_rows_and_no_strength_leave_everything_as_it_is():
    assert_array_equal(shrink(np.zeros(1), np.full((1, 2), 3.0), np.ones(2), 0.0), [[3.0, 3.0]])


def test_projections_are_those_of_the_types():
    matrix = np.array([[2.0, 1.0], [1.0, 4.0]])
    assert_array_equal(project(matrix, "full"), matrix)
    assert_array_equal(project(matrix, "tied"), matrix)
    assert_array_equal(project(matrix, "diag"), [2.0, 4.0])
    assert_array_equal(project(matrix, "spherical"), 3.0)

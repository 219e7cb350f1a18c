import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from fedgem.gaussian.covariances import (
    Gaussians,
    log_determinants,
    matrices,
    squared_distances,
)
from fedgem.gaussian.density import log_joint
from strategies import COVARIANCE_TYPES, covariances_of_type

K, D = 3, 4


def components(covariance_type):
    rng = np.random.default_rng(0)
    return Gaussians(
        rng.normal(size=(K, D)), covariances_of_type(covariance_type, K, D, rng), covariance_type
    )


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_every_type_means_what_its_matrices_mean(covariance_type):
    some = components(covariance_type)
    X = np.random.default_rng(1).normal(size=(20, D))
    as_full = Gaussians(some.means, matrices(some), "full")
    assert_allclose(log_determinants(some), log_determinants(as_full), atol=1e-12)
    assert_allclose(squared_distances(X, some), squared_distances(X, as_full), rtol=1e-12)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_densities_are_scipys(covariance_type):
    some = components(covariance_type)
    X = np.random.default_rng(1).normal(size=(20, D))
    expected = [
        np.log(0.2) + multivariate_normal(mean, covariance).logpdf(X)
        for mean, covariance in zip(some.means, matrices(some), strict=True)
    ]
    assert_allclose(log_joint(X, some, np.full(K, np.log(0.2))).T, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("covariances", "covariance_type", "said"),
    [
        (np.ones((K, D)), "full", r"full covariances of shape \(3, 4\), expected \(3, 4, 4\)"),
        (None, "tied", "shape None, expected"),
        (np.ones(K), "identity", "expected None"),
        (np.ones(K), "round", "covariance_type 'round', expected one of full"),
    ],
)
def test_a_wrong_shape_or_type_is_named(covariances, covariance_type, said):
    with pytest.raises(ValueError, match=said):
        Gaussians(np.zeros((K, D)), covariances, covariance_type)


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_a_covariance_of_no_distribution_is_named(covariance_type):
    covariances = covariances_of_type(covariance_type, K, D, np.random.default_rng(0))
    covariances[1] = -covariances[1]
    some = Gaussians(np.zeros((K, D)), covariances, covariance_type)
    with pytest.raises(ValueError, match="component 1 is not positive definite"):
        log_determinants(some)

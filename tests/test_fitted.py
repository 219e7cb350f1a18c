import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedgem.fitted import fitted
from fedgem.gaussian.statistics import Statistics
from fedgem.gaussian.subspace import principal, whole
from fedgem.shared import SharedMixture
from strategies import COVARIANCE_TYPES, covariances_of_type

COUNTS = np.array([[5.0, 9.0, 2.0], [1.0, 12.0, 7.0]])


def fit(covariance_type, subspace, shift, scale, seed=0):
    """Two clusters, the first of two parts, as if they had been found in a subspace."""
    rng = np.random.default_rng(seed)
    r = subspace.basis.shape[1]
    covariances = covariances_of_type(covariance_type, 3, r, rng)
    if covariance_type == "tied":
        covariances = covariances[None]
    some = Statistics(COUNTS.sum(axis=0), 2 * rng.normal(size=(3, r)), covariances)
    mixture = SharedMixture(some, np.array([0, 1, 0]), COUNTS, np.zeros(2))
    return fitted(mixture, covariance_type, np.zeros(r), subspace, shift, scale)


def grid(means, covariances, n=301):
    """Points over ten standard deviations about all clusters, and the volume of each."""
    spread = 10 * np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    axes = [
        np.linspace(*ends, n)
        for ends in zip((means - spread).min(axis=0), (means + spread).max(axis=0), strict=True)
    ]
    points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    return points, np.prod([axis[1] - axis[0] for axis in axes])


SUBSPACES = {
    "a line": whole(np.ones(1)),
    "a plane": whole(np.ones(2)),
    "units": whole(np.array([0.5, 3.0])),
    "all directions": principal(
        Statistics(np.ones(1), np.ones((1, 2)), np.array([[[2.0, 1.0], [1.0, 3.0]]]))
    ),
    # Wider than it has to be for a grid to see it.
    "one of two": principal(
        Statistics(np.ones(1), np.ones((1, 2)), np.array([[[20.0, 1.0], [1.0, 0.2]]]))
    ),
}


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("subspace", SUBSPACES.values(), ids=SUBSPACES.keys())
def test_densities_have_the_mass_the_means_and_the_covariances_that_are_told(
    covariance_type, subspace
):
    d = len(subspace.centre)
    shift, scale = np.array([7.0, -3.0])[:d], np.array([2.0, 0.1])[:d]
    mixture, _, means, covariances = fit(covariance_type, subspace, shift, scale)
    points, volume = grid(means, covariances)
    mass = np.exp(mixture.log_densities(points)) * volume
    assert_allclose(mass.sum(axis=0), 1.0, rtol=1e-3)
    for k, own in enumerate(mass.T):
        unit = np.sqrt(np.diagonal(covariances[k]))
        assert_allclose(own @ points / unit, means[k] / unit, atol=0.01)
        steps = (points - means[k]) / unit
        found = (own[:, None] * steps).T @ steps
        assert_allclose(found, covariances[k] / np.outer(unit, unit), atol=0.01)


def test_one_of_two_directions_is_left_out():
    assert SUBSPACES["one of two"].basis.shape == (2, 1)


def test_clusters_come_in_order_of_size():
    mixture, order, means, _ = fit("diag", whole(np.ones(2)), np.zeros(2), np.ones(2))
    assert_array_equal(order, [1, 0])  # 21 rows, and 15 in two parts
    assert_array_equal(mixture.cluster_of, [1, 0, 1])
    assert_allclose(mixture.shares, [6 / 15, 1.0, 9 / 15])
    assert mixture.n_clusters == 2
    assert_allclose(means[0], mixture.components.means[1])


def test_coordinates_give_what_rows_give():
    subspace = SUBSPACES["all directions"]
    shift, scale = np.array([7.0, -3.0]), np.array([2.0, 0.1])
    mixture, *_ = fit("full", subspace, shift, scale)
    coordinates = np.random.default_rng(0).normal(size=(5, 2))
    X = (coordinates @ subspace.back + subspace.centre) * scale + shift
    of_rows, of_coordinates = mixture.log_densities(X), mixture.log_densities_at(coordinates)
    differences = of_rows - of_coordinates
    assert_allclose(differences, differences[0, 0])  # the units of the coordinates, nothing else

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import mahalanobis, pdist

from fedgem.datasets import make_federated_blobs


def test_the_same_seed_gives_the_same_blobs():
    first, second, other = (make_federated_blobs(random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.means, second.means)
    np.testing.assert_array_equal(first.memberships, second.memberships)
    for client in first.clients:
        np.testing.assert_array_equal(first.clients[client], second.clients[client])
        np.testing.assert_array_equal(first.labels[client], second.labels[client])
    assert not np.array_equal(first.means, other.means)


@pytest.mark.parametrize("min_distance", [0.5, 4.0, 10.0])
def test_the_two_closest_means_are_exactly_min_distance_apart(min_distance):
    blobs = make_federated_blobs(min_distance=min_distance, random_state=0)
    assert pdist(blobs.means).min() == pytest.approx(min_distance, rel=1e-12)


@pytest.mark.parametrize("min_distance", [2.0, 8.0])
def test_no_cluster_is_closer_to_another_mean_than_min_distance(min_distance):
    blobs = make_federated_blobs(
        min_distance=min_distance, condition_number=30.0, n_features=3, random_state=0
    )
    distances = [
        mahalanobis(mean, own, np.linalg.inv(covariance))
        for k, (own, covariance) in enumerate(zip(blobs.means, blobs.covariances, strict=True))
        for mean in np.delete(blobs.means, k, axis=0)
    ]
    assert min(distances) == pytest.approx(min_distance, rel=1e-9)


@pytest.mark.parametrize(("n_features", "condition_number"), [(2, 1.5), (4, 30.0), (10, 1e4)])
def test_covariances_have_the_condition_number_and_determinant_1(n_features, condition_number):
    blobs = make_federated_blobs(
        n_features=n_features, condition_number=condition_number, random_state=0
    )
    assert_allclose(np.linalg.cond(blobs.covariances), condition_number, rtol=1e-6)
    assert_allclose(np.linalg.det(blobs.covariances), 1, rtol=1e-6)
    assert_allclose(blobs.covariances, blobs.covariances.transpose(0, 2, 1), atol=1e-10)
    assert not np.allclose(blobs.covariances[0], blobs.covariances[1])


def test_round_clusters_are_the_default_and_have_the_identity_as_covariance():
    blobs = make_federated_blobs(random_state=0)
    np.testing.assert_array_equal(blobs.covariances, np.tile(np.eye(4), (10, 1, 1)))


def test_the_rows_of_a_seed_stay_what_they_are():
    """Figures that were measured on them stay comparable."""
    blobs = make_federated_blobs(n_rows=10, random_state=0)
    expected = [-2.3418271116892004, 2.8078866997617893, 2.312044717907264, 2.3286984591310893]
    assert_allclose(blobs.clients["client-01"][0], expected, rtol=1e-12)


def test_long_clusters_are_at_the_clients_that_have_round_ones():
    first = make_federated_blobs(random_state=0)
    second = make_federated_blobs(condition_number=30.0, random_state=0)
    np.testing.assert_array_equal(first.memberships, second.memberships)
    np.testing.assert_array_equal(first.labels["client-01"], second.labels["client-01"])


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("n_clients", "n_clusters"), [(2, 3), (2, 10), (5, 10), (15, 10), (30, 3), (3, 100)]
)
def test_every_cluster_is_somewhere_and_no_client_has_them_all(n_clients, n_clusters, seed):
    blobs = make_federated_blobs(n_clients, n_clusters, n_rows=n_clusters, random_state=seed)
    n_held = blobs.memberships.sum(axis=1)
    assert blobs.memberships.shape == (n_clients, n_clusters)
    assert blobs.memberships.any(axis=0).all()
    assert n_held.min() >= 2
    assert n_held.max() < n_clusters


@pytest.mark.parametrize("equal_weights", [True, False])
def test_labels_agree_with_memberships(equal_weights):
    blobs = make_federated_blobs(n_rows=20, equal_weights=equal_weights, random_state=0)
    for held, y in zip(blobs.memberships, blobs.labels.values(), strict=True):
        np.testing.assert_array_equal(np.unique(y), np.flatnonzero(held))


def test_equal_weights_differ_by_one_row_at_most():
    for y in make_federated_blobs(random_state=0).labels.values():
        counts = np.unique(y, return_counts=True)[1]
        assert np.ptp(counts) <= 1


def test_random_weights_differ():
    for y in make_federated_blobs(equal_weights=False, random_state=0).labels.values():
        counts = np.unique(y, return_counts=True)[1]
        assert np.ptp(counts) > 10


def test_rows_of_each_client():
    sizes = [1000, 600, 400, 400, 100]
    blobs = make_federated_blobs(n_features=3, n_rows=sizes, random_state=0)
    assert list(blobs.clients) == [f"client-{g:02d}" for g in range(1, 6)]
    assert [X.shape for X in blobs.clients.values()] == [(size, 3) for size in sizes]
    assert [len(y) for y in blobs.labels.values()] == sizes


@pytest.mark.parametrize("condition_number", [1.0, 30.0])
def test_clusters_are_gaussians_with_their_means_and_covariances(condition_number):
    blobs = make_federated_blobs(n_rows=20_000, condition_number=condition_number, random_state=0)
    X, y = np.vstack(list(blobs.clients.values())), np.concatenate(list(blobs.labels.values()))
    for k, (mean, covariance) in enumerate(zip(blobs.means, blobs.covariances, strict=True)):
        whitening = np.linalg.inv(np.linalg.cholesky(covariance))
        noise = (X[y == k] - mean) @ whitening.T
        assert_allclose(noise.mean(axis=0), 0, atol=0.06)
        assert_allclose(np.cov(noise.T), np.eye(4), atol=0.08)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_clients": 1}, "n_clients must be at least 2, got 1."),
        ({"n_clusters": 2}, "n_clusters must be at least 3, got 2."),
        ({"n_features": 0}, "n_features must be at least 1, got 0."),
        ({"n_rows": [500, 500]}, "n_rows must have one entry per client, 5, got 2."),
        ({"n_rows": 9}, "n_rows must be at least n_clusters, 10, got 9."),
        ({"min_distance": 0.0}, "min_distance must be positive and finite, got 0.0."),
        ({"min_distance": np.nan}, "min_distance must be positive and finite, got nan."),
        ({"condition_number": 0.5}, "condition_number must be at least 1 and finite, got 0.5."),
        ({"condition_number": np.nan}, "condition_number must be at least 1 and finite, got nan."),
        (
            {"condition_number": 2.0, "n_features": 1},
            "condition_number must be 1 with one feature, got 2.0.",
        ),
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        make_federated_blobs(**arguments)
    assert str(error.value) == message

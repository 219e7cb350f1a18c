import numpy as np
import pytest
from scipy.spatial.distance import pdist

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


def test_clusters_are_standard_gaussians_around_their_means():
    blobs = make_federated_blobs(n_rows=20_000, random_state=0)
    noise = np.vstack([X - blobs.means[blobs.labels[g]] for g, X in blobs.clients.items()])
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(np.cov(noise.T), np.eye(4), atol=0.02)


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
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        make_federated_blobs(**arguments)
    assert str(error.value) == message

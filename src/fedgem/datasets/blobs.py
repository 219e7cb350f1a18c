"""Gaussian clusters spread over clients: the synthetic data of the sensitivity study."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from fedgem.datasets.partition import draw_memberships
from fedgem.typing import Array, BoolArray, IntArray

__all__ = ["FederatedBlobs", "make_federated_blobs"]


@dataclass(frozen=True, eq=False)
class FederatedBlobs:
    """Rows drawn from shared Gaussian clusters, and the truth about them.

    Attributes
    ----------
    clients : dict of str to ndarray of shape (n_rows, n_features)
        The rows of each client, shuffled: any slice of them is a fair split.
    labels : dict of str to ndarray of shape (n_rows,)
        The cluster of every row, by client.
    means : ndarray of shape (n_clusters, n_features)
        The cluster means.
    covariances : ndarray of shape (n_clusters, n_features, n_features)
        The cluster covariances, of determinant 1.
    memberships : ndarray of bool of shape (n_clients, n_clusters)
        Which client has which cluster.
    """

    clients: dict[str, Array]
    labels: dict[str, IntArray]
    means: Array
    covariances: Array
    memberships: BoolArray


def make_federated_blobs(
    n_clients: int = 5,
    n_clusters: int = 10,
    n_features: int = 4,
    *,
    n_rows: int | Sequence[int] = 500,
    min_distance: float = 4.0,
    condition_number: float = 1.0,
    equal_weights: bool = True,
    random_state: int | None = None,
) -> FederatedBlobs:
    """Draw clients that each hold some of a set of Gaussian clusters.

    Every client has at least two clusters, none has them all, and every cluster is at some client.

    Parameters
    ----------
    n_clients : int, default=5
        Number of clients, at least 2.
    n_clusters : int, default=10
        Number of clusters over all clients, at least 3.
    n_features : int, default=4
        Number of columns.
    n_rows : int or sequence of int, default=500
        Number of rows of every client, or of each. At least `n_clusters`.
    min_distance : float, default=4.0
        The smallest Mahalanobis distance from a cluster to the mean of another one. Of the two
        distances of a pair, by the one's covariance and by the other's, the smaller counts.
        Between round clusters it is the distance between the two closest means.
    condition_number : float, default=1.0
        The variance of every cluster along its longest axis, divided by that along its shortest.
        At 1, clusters are round, with the identity as covariance. Above 1, each has axes of its
        own, turned at random and of random lengths, and a volume as if it were round.
    equal_weights : bool, default=True
        Whether a client's clusters have equal shares of its rows. Otherwise the shares are
        uniform random numbers, normalised.
    random_state : int or None, default=None
        Seed; the same seed gives the same data.

    Returns
    -------
    FederatedBlobs
        The clients' rows, their labels, the means, the covariances, and which client has which
        cluster.

    Raises
    ------
    ValueError
        If an argument is out of the range above.

    Examples
    --------
    The three settings of the sensitivity study: nominal, client imbalance, cluster imbalance.

    >>> from fedgem.datasets import make_federated_blobs
    >>> nominal = make_federated_blobs(random_state=0)
    >>> nominal.clients["client-01"].shape
    (500, 4)
    >>> shares = make_federated_blobs(n_rows=[1000, 600, 400, 400, 100], random_state=0)
    >>> [len(X) for X in shares.clients.values()]
    [1000, 600, 400, 400, 100]
    >>> uneven = make_federated_blobs(equal_weights=False, random_state=0)
    >>> uneven.memberships.shape
    (5, 10)

    Clusters that are long in directions of their own:

    >>> long = make_federated_blobs(condition_number=30.0, random_state=0)
    >>> np.linalg.cond(long.covariances).round(6)[:3]
    array([30., 30., 30.])
    """
    sizes = [n_rows] * n_clients if isinstance(n_rows, int) else list(n_rows)
    if n_clients < 2:
        raise ValueError(f"n_clients must be at least 2, got {n_clients}.")
    if n_clusters < 3:
        raise ValueError(f"n_clusters must be at least 3, got {n_clusters}.")
    if n_features < 1:
        raise ValueError(f"n_features must be at least 1, got {n_features}.")
    if len(sizes) != n_clients:
        raise ValueError(f"n_rows must have one entry per client, {n_clients}, got {len(sizes)}.")
    if min(sizes) < n_clusters:
        raise ValueError(f"n_rows must be at least n_clusters, {n_clusters}, got {min(sizes)}.")
    if not 0 < min_distance < np.inf:
        raise ValueError(f"min_distance must be positive and finite, got {min_distance}.")
    if not 1 <= condition_number < np.inf:
        raise ValueError(f"condition_number must be at least 1 and finite, got {condition_number}.")
    if n_features == 1 and condition_number > 1:
        raise ValueError(f"condition_number must be 1 with one feature, got {condition_number}.")

    rng = np.random.default_rng(random_state)
    means = rng.standard_normal((n_clusters, n_features))
    # A stream of its own: whatever the condition number, nothing else is drawn differently.
    covariances = _draw_covariances(n_clusters, n_features, condition_number, rng.spawn(1)[0])
    factors = np.linalg.cholesky(covariances)
    means *= min_distance / _closest(means, factors)
    memberships = draw_memberships(n_clients, n_clusters, 2, n_clusters - 1, rng)

    clients, labels = {}, {}
    for g, size in enumerate(sizes):
        held = np.flatnonzero(memberships[g])
        weights = np.ones(len(held)) if equal_weights else rng.random(len(held))
        # A first row for every cluster; the weights share out the others.
        ends = np.rint((size - len(held)) * np.cumsum(weights) / weights.sum()).astype(np.intp)
        counts = 1 + np.diff(ends, prepend=0)
        y = rng.permutation(np.repeat(held, counts))
        noise = rng.standard_normal((size, n_features))
        for k in held:
            noise[y == k] = noise[y == k] @ factors[k].T
        clients[f"client-{g + 1:02d}"] = means[y] + noise
        labels[f"client-{g + 1:02d}"] = y
    return FederatedBlobs(clients, labels, means, covariances, memberships)


def _draw_covariances(
    n_clusters: int, n_features: int, condition_number: float, rng: np.random.Generator
) -> Array:
    """Draw covariances of determinant 1, turned at random; the identity at condition number 1."""
    if condition_number == 1:
        return np.tile(np.eye(n_features), (n_clusters, 1, 1))
    # Logarithms of the variances: at random, then stretched to the condition number.
    logs = rng.random((n_clusters, n_features))
    logs *= np.log(condition_number) / np.ptp(logs, axis=1, keepdims=True)
    logs -= logs.mean(axis=1, keepdims=True)
    axes = np.linalg.qr(rng.standard_normal((n_clusters, n_features, n_features))).Q
    covariances: Array = axes * np.exp(logs)[:, None, :] @ axes.transpose(0, 2, 1)
    return covariances


def _closest(means: Array, factors: Array) -> float:
    """Return the smallest distance between a cluster and the mean of another one.

    The rows of a cluster are spheres after a product with the inverse of its factor L, where
    LL' is its covariance: Mahalanobis distances are Euclidean there.
    """
    distances = np.array(
        [
            cdist(means[k : k + 1] @ whitening.T, means @ whitening.T)[0]
            for k, whitening in enumerate(np.linalg.inv(factors))
        ]
    )
    np.fill_diagonal(distances, np.inf)
    return float(distances.min())

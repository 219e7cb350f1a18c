"""Round Gaussian clusters spread over clients: the synthetic data of the sensitivity study."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import pdist

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
        The cluster means; every covariance is the identity.
    memberships : ndarray of bool of shape (n_clients, n_clusters)
        Which client has which cluster.
    """

    clients: dict[str, Array]
    labels: dict[str, IntArray]
    means: Array
    memberships: BoolArray


def make_federated_blobs(
    n_clients: int = 5,
    n_clusters: int = 10,
    n_features: int = 4,
    *,
    n_rows: int | Sequence[int] = 500,
    min_distance: float = 4.0,
    equal_weights: bool = True,
    random_state: int | None = None,
) -> FederatedBlobs:
    """Draw clients that each hold some of a set of round Gaussian clusters.

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
        Distance between the two closest means, in standard deviations.
    equal_weights : bool, default=True
        Whether a client's clusters have equal shares of its rows. Otherwise the shares are
        uniform random numbers, normalised.
    random_state : int or None, default=None
        Seed; the same seed gives the same data.

    Returns
    -------
    FederatedBlobs
        The clients' rows, their labels, the means, and which client has which cluster.

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

    rng = np.random.default_rng(random_state)
    means = rng.standard_normal((n_clusters, n_features))
    means *= min_distance / pdist(means).min()
    memberships = _draw_memberships(n_clients, n_clusters, rng)

    clients, labels = {}, {}
    for g, size in enumerate(sizes):
        held = np.flatnonzero(memberships[g])
        weights = np.ones(len(held)) if equal_weights else rng.random(len(held))
        # A first row for every cluster; the weights share out the others.
        ends = np.rint((size - len(held)) * np.cumsum(weights) / weights.sum()).astype(np.intp)
        counts = 1 + np.diff(ends, prepend=0)
        y = rng.permutation(np.repeat(held, counts))
        clients[f"client-{g + 1:02d}"] = means[y] + rng.standard_normal((size, n_features))
        labels[f"client-{g + 1:02d}"] = y
    return FederatedBlobs(clients, labels, means, memberships)


def _draw_memberships(n_clients: int, n_clusters: int, rng: np.random.Generator) -> BoolArray:
    """Draw 2 to K - 1 clusters for each client such that every cluster is at some client."""
    memberships = np.zeros((n_clients, n_clusters), dtype=np.bool_)
    # Deal the clusters like cards, so that each has a client, then fill every hand at random.
    memberships[np.arange(n_clusters) % n_clients, rng.permutation(n_clusters)] = True
    for hand in memberships:
        n_held = rng.integers(max(2, hand.sum()), n_clusters)
        missing = rng.permutation(np.flatnonzero(~hand))
        hand[missing[: n_held - hand.sum()]] = True
    return memberships

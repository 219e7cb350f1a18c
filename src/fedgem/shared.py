"""A mixture that all clients share, each with weights of its own.

A cluster is one Gaussian or several: rows of client g have the density

    p_g(x) = sum_k pi_gk sum_{m in k} omega_m phi(x | mean_m, covariance_m),

with means, covariances and the shares omega of a cluster's parts common to all clients, and
weights pi that are each client's own and zero for all but n_g clusters. Everything in it follows
from additive statistics: counts, means, covariances and overlaps of the parts, and each client's
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from fedgem.gaussian.covariances import CovarianceType, Gaussians, per_component
from fedgem.gaussian.mixture import regularised
from fedgem.gaussian.statistics import Statistics, concatenated, products
from fedgem.messages import SharedPart
from fedgem.typing import Array, BoolArray, IntArray

# A client has the fewest clusters that answer for more than this share of its rows.
PRESENT = 0.99


@dataclass(frozen=True)
class SharedMixture:
    """A shared mixture, as statistics.

    Attributes
    ----------
    statistics : Statistics
        Of the M parts, over all clients.
    cluster_of : array of shape (M,)
        The cluster of each part.
    local_counts : array of shape (G, M)
        How many rows of each client each part answers for.
    log_likelihoods : array of shape (G,)
        Of each client's rows in the round before; NaN where the client has not answered yet.
    age : int
        How many rounds the mixture has had.
    """

    statistics: Statistics
    cluster_of: IntArray
    local_counts: Array
    log_likelihoods: Array
    age: int = 0

    @property
    def n_clusters(self) -> int:
        """The number of clusters."""
        return int(self.cluster_of.max()) + 1

    @property
    def cluster_counts(self) -> Array:
        """How many rows of each client each cluster answers for, an array of shape (G, K)."""
        return np.asarray(self.local_counts @ np.eye(self.n_clusters)[self.cluster_of])


def pooled(
    statistics: Statistics, labels: IntArray, local_counts: Array, covariance_type: CovarianceType
) -> SharedMixture:
    """Return a shared mixture of one part a label, each that of all components with the label.

    Examples
    --------
    >>> some = Statistics(np.ones(3), np.array([[0.0], [2.0], [9.0]]), np.zeros((3, 1)))
    >>> mixture = pooled(some, np.array([0, 0, 1]), np.ones((1, 3)), "diag")
    >>> mixture.statistics.means.ravel(), mixture.statistics.covariances.ravel()
    (array([1., 9.]), array([1., 0.]))
    """
    n_parts = int(labels.max()) + 1
    onehot = np.eye(n_parts)[labels]
    totals = np.maximum(onehot.T @ statistics.counts, np.finfo(np.float64).tiny)
    means = (onehot.T @ (statistics.counts[:, None] * statistics.means)) / totals[:, None]
    total = _sum(means, labels, concatenated([statistics]), covariance_type)
    g = len(local_counts)
    return SharedMixture(total, np.arange(n_parts), local_counts @ onehot, np.full(g, np.nan))


def _sum(
    anchors: Array, parts: IntArray, statistics: Statistics, covariance_type: CovarianceType
) -> Statistics:
    """Add up the statistics of components, each of which belongs to one of the parts.

    Differences are taken from `anchors`, means near those of the parts, so that they keep their
    precision.
    """
    n_parts, n_components = len(anchors), len(parts)
    of_part = csr_array(
        (np.ones(n_components), (parts, np.arange(n_components))), (n_parts, n_components)
    )
    step = statistics.means - anchors[parts]
    counts = of_part @ statistics.counts
    known = np.maximum(counts, np.finfo(np.float64).tiny)
    moved = (of_part @ (statistics.counts[:, None] * step)) / known[:, None]
    covariances = None
    if statistics.covariances is not None:
        ndim = statistics.covariances.ndim
        axes = (slice(None),) + (None,) * (ndim - 1)
        second = statistics.counts[axes] * (statistics.covariances + products(step, ndim))
        if covariance_type == "tied":
            between = (counts[axes] * products(moved, 3)).sum(axis=0)
            covariances = (second.sum(axis=0) - between)[None] / known.sum()
        else:
            added = (of_part @ second.reshape(n_components, -1)).reshape(n_parts, *second.shape[1:])
            covariances = added / known[axes] - products(moved, ndim)
    return Statistics(counts, anchors + moved, covariances, np.zeros((n_parts, n_parts)))


def merged(
    mixture: SharedMixture, cluster_of: IntArray, covariance_type: CovarianceType
) -> SharedMixture:
    """Return the mixture in which each of these clusters is one Gaussian."""
    return pooled(mixture.statistics, cluster_of, mixture.local_counts, covariance_type)


def local_weights(
    mixture: SharedMixture, n_local: IntArray | None, fewest_rows: float = 0.0
) -> Array:
    """Return each client's weights of the parts, an array of shape (G, M).

    Parameters
    ----------
    mixture : SharedMixture
        The mixture.
    n_local : array of shape (G,), optional
        How many clusters each client may keep: its largest. All of them by default.
    fewest_rows : float
        How many rows of a cluster it takes for a client to have it. Who has most rows of a
        cluster, among those that may keep it, has it in any case, and every client its largest.

    Examples
    --------
    >>> some = Statistics(np.full(3, 4.0), np.zeros((3, 1)))
    >>> mixture = SharedMixture(some, np.array([0, 0, 1]), np.array([[3.0, 3.0, 1.0]]), np.zeros(1))
    >>> local_weights(mixture, np.array([1]))
    array([[0.5, 0.5, 0. ]])
    """
    counts = mixture.statistics.counts + np.finfo(np.float64).tiny
    share = counts / np.bincount(mixture.cluster_of, weights=counts)[mixture.cluster_of]
    of_clusters = mixture.cluster_counts
    rank = np.argsort(np.argsort(-of_clusters, axis=1, kind="stable"), axis=1)
    kept = rank < (len(of_clusters.T) if n_local is None else n_local[:, None])
    if fewest_rows:
        counts = np.where(kept, of_clusters, -1.0)
        most = (counts == counts.max(axis=0)) | (counts == counts.max(axis=1, keepdims=True))
        kept &= (counts >= fewest_rows) | most
    charged = np.where(kept, of_clusters + 1.0, 0.0)  # as in `weights_of`
    weights = charged / charged.sum(axis=1, keepdims=True)
    return np.asarray(weights[:, mixture.cluster_of] * share)


def n_present(local_counts: Array) -> IntArray:
    """Return how many clusters each client has: the fewest with more than 99% of its rows.

    The others are where its rows stray to. Of a client without rows nothing is known: all.

    Examples
    --------
    >>> n_present(np.array([[60.0, 39.5, 0.5], [30.0, 30.0, 40.0], [0.0, 0.0, 0.0]]))
    array([2, 3, 3])
    """
    largest_first = -np.sort(-local_counts, axis=1)
    before = largest_first.cumsum(axis=1) - largest_first
    return np.asarray((before <= PRESENT * local_counts.sum(axis=1, keepdims=True)).sum(axis=1))


def parts_for(
    mixture: SharedMixture,
    weights: Array,
    covariance_type: CovarianceType,
    floor: Array,
    tied: float = 0.0,
) -> list[SharedPart]:
    """Return what each client is sent: the parts that it has any weight for."""
    components = regularised(mixture.statistics, covariance_type, floor, tied)
    covariances = components.covariances
    sent = []
    for own in weights:
        has = np.flatnonzero(own)
        if len(has) == len(own):
            sent.append(SharedPart(components.means, own, covariances))
            continue
        shapes = covariances
        if covariances is not None and covariance_type != "tied":
            shapes = covariances.take(has, axis=0)
        sent.append(SharedPart(components.means.take(has, axis=0), own.take(has), shapes))
    return sent


def updated(
    mixture: SharedMixture,
    weights: Array,
    replies: Sequence[tuple[int, Statistics, float]],
    covariance_type: CovarianceType,
) -> SharedMixture:
    """Return the mixture after a round.

    Parameters
    ----------
    mixture : SharedMixture
        Before the round.
    weights : array of shape (G, M)
        The weights that the clients were sent.
    replies : sequence of (client, statistics, log-likelihood)
        From the clients that answered. The others keep their counts, and parts that only they
        have stay as they are.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        The form of the covariances.
    """
    if not replies:
        return replace(mixture, age=mixture.age + 1)
    clients, statistics, log_likelihoods = zip(*replies, strict=True)
    answered, has = np.array(clients), weights > 0
    owners, parts = np.nonzero(has[answered])
    own = concatenated(statistics)
    local_counts, likelihoods = mixture.local_counts.copy(), mixture.log_likelihoods.copy()
    local_counts[answered] = 0.0
    local_counts[answered[owners], parts] = own.counts
    likelihoods[answered] = log_likelihoods
    total = _sum(mixture.statistics.means, parts, own, covariance_type)
    assert total.overlap is not None
    for g, some, _ in replies:
        if some.overlap is not None:
            total.overlap[np.ix_(has[g], has[g])] += some.overlap
    silent = has.any(axis=0) & ~has[answered].any(axis=0)
    return SharedMixture(
        _kept(mixture.statistics, total, silent),
        mixture.cluster_of,
        local_counts,
        likelihoods,
        mixture.age + 1,
    )


def _kept(before: Statistics, after: Statistics, silent: BoolArray) -> Statistics:
    """Return the statistics after a round, but for these parts those before."""
    counts = np.where(silent, before.counts, after.counts)
    covariances = after.covariances
    if (
        covariances is not None
        and before.covariances is not None
        and len(covariances) == len(counts)
    ):
        covariances = np.where(
            silent.reshape(-1, *(1,) * (covariances.ndim - 1)), before.covariances, covariances
        )
    return replace(after, counts=counts, covariances=covariances)


def all_likelihoods(mixture: SharedMixture, n_rows: IntArray) -> Array:
    """Return the clients' log-likelihoods; who has not answered counts like the others.

    Examples
    --------
    >>> some = Statistics(np.ones(1), np.zeros((1, 1)))
    >>> mixture = SharedMixture(some, np.zeros(1, int), np.ones((2, 1)), np.array([-6.0, np.nan]))
    >>> all_likelihoods(mixture, np.array([3, 4]))
    array([-6., -8.])
    """
    known = ~np.isnan(mixture.log_likelihoods)
    per_row = mixture.log_likelihoods[known].sum() / max(1, n_rows[known].sum())
    return np.where(known, mixture.log_likelihoods, per_row * n_rows)


def all_are_kept(mixture: SharedMixture, n_local: IntArray) -> bool:
    """Tell whether each cluster is among the `n_local` largest of any client."""
    return bool((local_weights(mixture, n_local) > 0).any(axis=0).all())


def bayesian_information(
    mixture: SharedMixture, n_rows: IntArray, n_local: IntArray, covariance_type: CovarianceType
) -> float:
    """Return the BIC of a shared mixture as a log-likelihood: the larger, the better.

    The clients' log-likelihoods, less log(N)/2 for each parameter that all share and log(N_g)/2
    for each that is one client's. A client that has not answered counts like the others. A mixture
    with a cluster that no client may keep has fewer clusters than it says, and no BIC: -inf.
    """
    if np.isnan(mixture.log_likelihoods).all() or not all_are_kept(mixture, n_local):
        return -np.inf
    likelihood = all_likelihoods(mixture, n_rows).sum()
    shared = 0.5 * n_parameters(mixture, covariance_type) * np.log(n_rows.sum())
    return float(likelihood - shared - own_penalties(mixture, n_rows, n_local).sum())


def evidence(mixture: SharedMixture, n_rows: IntArray, covariance_type: CovarianceType) -> float:
    """Return the log-evidence of clusters that all clients may use, by Laplace's approximation.

    A parameter that n rows tell of costs log((n + m) / m) / 2 where its prior counts as m rows: one
    row for means and for weights, d rows for covariances (`fedgem.gaussian.mixture.regularised`).
    What tells of a cluster are its own rows, and a client pays for the clusters that it has.
    """
    if np.isnan(mixture.log_likelihoods).all():
        return -np.inf
    n, d = mixture.statistics.counts, mixture.statistics.means.shape[1]
    of_covariance = {"full": d * (d + 1) / 2, "diag": d, "spherical": 1}.get(covariance_type, 0)
    shared = d * np.log(n + 1).sum() + of_covariance * np.log((n + d) / d).sum()
    own = own_penalties(mixture, n_rows, n_present(mixture.cluster_counts)).sum()
    return float(all_likelihoods(mixture, n_rows).sum() - 0.5 * shared - own)


def undecided(mixture: SharedMixture) -> float:
    """Return the entropy of the rows' clusters: what the ICL takes off the BIC.

    The entropy of one row is not additive in what clients send, the Gini index is: 1 less the sum
    of squares of its probabilities, and over all rows the overlap between different clusters. It
    is scaled to agree with the entropy, in nats, where a row is torn between two clusters.

    Examples
    --------
    >>> some = Statistics(np.ones(2), np.zeros((2, 1)), overlap=np.full((2, 2), 0.5))
    >>> mixture = SharedMixture(some, np.arange(2), np.ones((1, 2)), np.zeros(1))
    >>> round(undecided(mixture), 3)  # two rows, each torn: 2 log 2
    1.386
    """
    overlap = mixture.statistics.overlap
    assert overlap is not None
    others = mixture.cluster_of[:, None] != mixture.cluster_of
    return float(2 * np.log(2) * overlap[others].sum())


def n_parameters(mixture: SharedMixture, covariance_type: CovarianceType) -> int:
    """Return how many parameters all clients share: means, covariances, and shares of clusters.

    Examples
    --------
    >>> some = Statistics(np.full(3, 4.0), np.zeros((3, 2)))
    >>> n_parameters(SharedMixture(some, np.arange(3), np.ones((1, 3)), np.zeros(1)), "full")
    15
    """
    n_parts, d = mixture.statistics.means.shape
    matrix = d * (d + 1) // 2
    shapes = {
        "full": n_parts * matrix,
        "tied": matrix,
        "diag": n_parts * d,
        "spherical": n_parts,
        "identity": 0,
    }[covariance_type]
    return int(n_parts * d + shapes + n_parts - mixture.n_clusters)


def own_penalties(mixture: SharedMixture, n_rows: IntArray, n_local: IntArray) -> Array:
    """Return what the BIC takes off for each client's own weights, an array of shape (G,)."""
    n_own = np.minimum(n_local, mixture.n_clusters) - 1
    return np.asarray(0.5 * n_own * np.log(np.maximum(n_rows, 1)))


def cluster_moments(components: Gaussians, mixture: SharedMixture) -> tuple[Array, Array]:
    """Return the mean and covariance of each cluster, (K, r) and (K, r, r), parts and all."""
    n_features = components.means.shape[1]
    shapes = per_component(components)
    if shapes is None:
        shapes = np.ones(len(components.means))
    if shapes.ndim == 1:
        shapes = np.repeat(shapes[:, None], n_features, axis=1)
    if shapes.ndim == 2:
        shapes = shapes[:, :, None] * np.eye(n_features)
    counts = mixture.statistics.counts + np.finfo(np.float64).tiny
    onehot = np.eye(mixture.n_clusters)[mixture.cluster_of]
    share = counts[:, None] * onehot / (counts @ onehot)
    means = share.T @ components.means
    between = products(components.means - means[mixture.cluster_of], 3)
    return means, np.tensordot(share.T, shapes + between, 1)

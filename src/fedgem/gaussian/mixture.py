"""A client's own mixture: EM from several starts, its covariances tied at first and then set free.

Covariances shrink towards W, the covariance pooled over the components, as if d more rows had it:
S_k <- (n_k S_k + d W) / (n_k + d). On top of that, the first steps draw them to W altogether and
let go step by step. With one shape for all, EM sees where the components lie before it sees what
each looks like, and ends less often with one component across two clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus

from fedgem.gaussian.covariances import CovarianceType, Gaussians
from fedgem.gaussian.estep import e_steps
from fedgem.gaussian.initialisation import SAMPLE
from fedgem.gaussian.shrinkage import shrink
from fedgem.gaussian.statistics import Statistics, products
from fedgem.rows import Rows
from fedgem.typing import Array, IntArray

# How much of the common covariance the components keep in the first steps of a fit.
RELEASE = np.linspace(1.0, 0.0, 16)
TRIAL_STEPS = 10
MOST_STEPS = 50
PATIENCE = 2  # numbers of components to try beyond the best
SMALL_GAIN = 1e-5  # nats per row: less is no reason for another step


def regularised(
    statistics: Statistics, covariance_type: CovarianceType, floor: Array, tied: float = 0.0
) -> Gaussians:
    """Return components whose covariances are shrunk towards the one that is pooled over all.

    Parameters
    ----------
    statistics : Statistics
        Counts, means and covariances.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        The form of the covariances.
    floor : array of shape (d,)
        Variances added to the pooled covariance, so that it is positive definite.
    tied : float
        How much of the pooled covariance the components are given on top of that, from 0 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> some = Statistics(np.array([3.0, 1.0]), np.zeros((2, 1)), np.array([[4.0], [0.0]]))
    >>> regularised(some, "diag", np.zeros(1)).covariances
    array([[3.75],
           [1.5 ]])
    """
    covariances = statistics.covariances
    if covariances is None or covariance_type == "identity":
        return Gaussians(statistics.means)
    counts = statistics.counts
    added = floor
    if covariance_type in ("full", "tied"):
        added = np.diag(floor)
    elif covariance_type == "spherical":
        added = np.asarray(floor.mean())
    if covariance_type == "tied":
        return Gaussians(statistics.means, covariances[0] + added, covariance_type)
    total = counts.sum()
    shares = counts / total if total > 0 else np.full(len(counts), 1 / len(counts))
    pooled = np.tensordot(shares, covariances, 1)
    if pooled.ndim == 2:  # a few rows say little about how features go together
        few = statistics.means.shape[1] / (total + statistics.means.shape[1])
        pooled = (1 - few) * pooled + few * np.diag(np.diagonal(pooled))
    pooled = pooled + added
    own = shrink(counts, covariances, pooled, float(statistics.means.shape[1]))
    return Gaussians(statistics.means, (1 - tied) * own + tied * pooled, covariance_type)


def weights_of(counts: Array) -> Array:
    """Return weights learned with one more row for each component.

    Examples
    --------
    >>> import numpy as np
    >>> weights_of(np.array([3.0, 0.0]))
    array([0.8, 0.2])
    """
    return np.asarray((counts + 1) / (counts.sum() + len(counts)))


def fit_mixture(
    rows: Rows,
    n_components: int,
    covariance_type: CovarianceType,
    floor: Array,
    n_init: int,
    seed: list[int],
    pool: Executor | None = None,
) -> tuple[Statistics, float]:
    """Fit a Gaussian mixture with learned weights by EM.

    Parameters
    ----------
    rows : Rows
        The rows.
    n_components : int
        The number of components.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        The form of the covariances.
    floor : array of shape (d,)
        As in `regularised`.
    n_init : int
        How many k-means++ starts to try on a sample; the likeliest goes on, on all rows.
    seed : list of int
        Decides the draws.
    pool : Executor, optional
        Threads for the blocks of many rows.

    Returns
    -------
    statistics : Statistics
        Of the last step.
    log_likelihood : float
        Of the rows, under the components that the last step began with.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [1.0], [2.0], [50.0], [51.0], [52.0]]))
    >>> statistics, _ = fit_mixture(rows, 2, "diag", np.zeros(1), n_init=1, seed=[0])
    >>> sorted(statistics.means.ravel().round(6).tolist())
    [1.0, 51.0]
    """
    rng = np.random.default_rng(seed)
    sample = rows.sample(SAMPLE, rng).astype(np.float64)
    sampled = Rows.from_array(sample)

    def steps(
        on: Rows, trials: Sequence[tuple[Statistics, float]], tied: float
    ) -> list[tuple[Statistics, float]]:
        mixtures = [
            (
                regularised(statistics, covariance_type, floor, tied),
                np.log(weights_of(statistics.counts)),
            )
            for statistics, _ in trials
        ]
        return e_steps(on, mixtures, pool)

    trials = []
    for _ in range(n_init):
        state = np.random.RandomState(rng.integers(2**32, dtype=np.uint32))
        centres, _ = kmeans_plusplus(sample, n_components, random_state=state)
        labels = cdist(sample, centres, "sqeuclidean").argmin(axis=1)
        trials.append((statistics_of_labels(sample, labels, centres, covariance_type), 0.0))
    for tied in RELEASE[:TRIAL_STEPS]:
        trials = steps(sampled, trials, tied)
    statistics, log_likelihood = max(trials, key=lambda trial: trial[1])
    for n in range(TRIAL_STEPS, MOST_STEPS):
        before = log_likelihood
        tied = RELEASE[n] if n < len(RELEASE) else 0.0
        ((statistics, log_likelihood),) = steps(rows, [(statistics, log_likelihood)], tied)
        if n >= len(RELEASE) and log_likelihood - before < SMALL_GAIN * rows.n_kept:
            break
    return statistics, log_likelihood


def fit_any_number(
    rows: Rows,
    covariance_type: CovarianceType,
    floor: Array,
    n_init: int,
    seed: list[int],
    pool: Executor | None = None,
) -> tuple[Statistics, float]:
    """Fit mixtures of more and more components as long as that pays.

    Parameters
    ----------
    rows, covariance_type, floor, n_init, seed, pool
        As in `fit_mixture`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 1))
    >>> rows = Rows.from_array(np.concatenate([X, X + 9.0]))
    >>> statistics, _ = fit_any_number(rows, "full", np.zeros(1), n_init=1, seed=[0])
    >>> len(statistics.counts)
    2
    """
    n_features = rows.shape[1]
    per_component = (
        n_features
        + 1
        + {
            "full": n_features * (n_features + 1) // 2,
            "diag": n_features,
            "spherical": 1,
        }.get(covariance_type, 0)
    )
    most = max(1, rows.n_kept // (n_features + 2))
    scores: list[float] = []
    for n in range(1, most + 1):
        found = fit_mixture(rows, n, covariance_type, floor, n_init, seed, pool)
        scores.append(found[1] - n * per_component)
        if scores[-1] >= max(scores):
            best = found
        elif n - int(np.argmax(scores)) > PATIENCE:
            break
    return best


def statistics_of_labels(
    X: Array, labels: IntArray, centres: Array, covariance_type: CovarianceType
) -> Statistics:
    """Return the statistics of rows that each belong to one component.

    Parameters
    ----------
    X : array of shape (N, d)
        The rows.
    labels : array of shape (N,)
        Their components.
    centres : array of shape (K, d)
        The means of components without rows.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        The form of the covariances.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [2.0], [9.0]])
    >>> statistics_of_labels(X, np.array([0, 0, 1]), np.zeros((2, 1)), "diag").covariances
    array([[1.],
           [0.]])
    """
    n_components, n_features = centres.shape
    counts = np.bincount(labels, minlength=n_components).astype(np.float64)
    means, ndim = centres.copy(), {"diag": 2, "spherical": 1}.get(covariance_type, 3)
    covariances = np.zeros((n_components,) + (n_features,) * (ndim - 1))
    for k in np.flatnonzero(counts):
        own = X[labels == k]
        means[k] = own.mean(axis=0)
        covariances[k] = products(own - means[k], ndim).mean(axis=0)
    if covariance_type == "tied":
        covariances = np.tensordot(counts / counts.sum(), covariances, 1)[None]
    return Statistics(counts, means, None if covariance_type == "identity" else covariances)

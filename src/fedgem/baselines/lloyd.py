"""Lloyd's algorithm, on rows in blocks and with weights: what several methods are made of."""

from __future__ import annotations

import numpy as np
from numba import njit
from sklearn.cluster import kmeans_plusplus

from fedgem.gaussian.initialisation import SAMPLE
from fedgem.gaussian.kernels import FASTMATH
from fedgem.gaussian.statistics import Statistics
from fedgem.rows import Rows
from fedgem.typing import Array

MOST_STEPS = 300  # as scikit-learn's KMeans
STARTS = 5


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def _lloyd_block(X, weights, means, counts, sums):  # type: ignore[no-untyped-def]
    """Add one block's weights to `counts`, its offsets to `sums`; return its inertia.

    Offsets from the means do not cancel where the rows are far from the origin.
    """
    inertia = 0.0
    for i in range(len(X)):
        least, nearest = np.inf, 0
        for k in range(len(means)):
            square = 0.0
            for j in range(X.shape[1]):
                difference = X[i, j] - means[k, j]
                square += difference * difference
            if square < least:
                least, nearest = square, k
        inertia += weights[i] * least
        counts[nearest] += weights[i]
        for j in range(X.shape[1]):
            sums[nearest, j] += weights[i] * (X[i, j] - means[nearest, j])
    return inertia


def lloyd_step(rows: Rows, means: Array, weights: Array | None = None) -> tuple[Statistics, float]:
    """Give every row to its nearest mean, and every mean the mean of its rows.

    Of equally near means the first has the row; a mean without rows stays where it is.

    Parameters
    ----------
    rows : Rows
        The rows.
    means : array of shape (K, d)
        The means.
    weights : array of shape (N,), optional
        How much each row counts; one by default.

    Returns
    -------
    statistics : Statistics
        How much each mean's rows count, and their mean.
    inertia : float
        The sum of the squared distances to the means that were given.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [2.0], [9.0]]))
    >>> statistics, inertia = lloyd_step(rows, np.array([[0.0], [8.0]]))
    >>> statistics.counts, statistics.means.ravel(), inertia
    (array([2., 1.]), array([1., 9.]), 5.0)
    """
    counts, sums = np.zeros(len(means)), np.zeros(means.shape)
    inertia, start = 0.0, 0
    for block in rows.blocks():
        own = np.ones(len(block)) if weights is None else weights[start : start + len(block)]
        inertia += _lloyd_block(np.ascontiguousarray(block), own, means, counts, sums)
        start += len(block)
    steps = np.divide(sums, counts[:, None], out=sums, where=counts[:, None] > 0)
    return Statistics(counts, means + steps), inertia


def lloyd(rows: Rows, means: Array, weights: Array | None = None) -> tuple[Statistics, float]:
    """Repeat `lloyd_step` until the inertia no longer falls, and return the last one.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [2.0], [9.0]]))
    >>> lloyd(rows, np.array([[2.0], [3.0]]))[0].means.ravel()
    array([1., 9.])
    """
    least = np.inf
    for _ in range(MOST_STEPS):
        statistics, inertia = lloyd_step(rows, means, weights)
        if not inertia < least:
            break
        means, least = statistics.means, inertia
    return statistics, inertia


def seeds(
    rows: Rows, n_clusters: int, rng: np.random.Generator, weights: Array | None = None
) -> Array:
    """Return rows drawn by k-means++ (Arthur and Vassilvitskii, 2007); all where they are fewer.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [9.0]]))
    >>> np.sort(seeds(rows, 3, np.random.default_rng(0)).ravel())
    array([0., 9.])
    """
    sample = rows.sample(SAMPLE if weights is None else rows.n_kept, rng).astype(np.float64)
    state = np.random.RandomState(rng.integers(2**32, dtype=np.uint32))
    n_seeds = min(n_clusters, len(sample))
    drawn, _ = kmeans_plusplus(sample, n_seeds, sample_weight=weights, random_state=state)
    return np.asarray(drawn)


def k_means(
    rows: Rows, n_clusters: int, rng: np.random.Generator, weights: Array | None = None
) -> Array:
    """Return the means of the best of several runs of Lloyd's algorithm.

    Parameters
    ----------
    rows : Rows
        The rows.
    n_clusters : int
        How many means to look for. There are fewer where there are fewer distinct rows.
    rng : numpy Generator
        Draws the starts.
    weights : array of shape (N,), optional
        How much each row counts; one by default.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [2.0], [9.0], [9.0]]))
    >>> np.sort(k_means(rows, 2, np.random.default_rng(0)).ravel())
    array([1., 9.])
    """
    runs = [lloyd(rows, seeds(rows, n_clusters, rng, weights), weights) for _ in range(STARTS)]
    best, _ = min(runs, key=lambda run: run[1])
    return best.means[best.counts > 0]

"""What a component is made of: statistics that add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgem.typing import Array


@dataclass(frozen=True)
class Statistics:
    """The additive statistics of some components.

    They are kept as counts, means and covariances instead of counts and sums: the same
    information, without the cancellation that sums suffer on data far from the origin. Adding two
    keeps the promise of sums: the statistics of two sets of rows are the sum of their statistics.

    Attributes
    ----------
    counts : array of shape (K,)
        How many rows each component answers for, the sum of its responsibilities.
    means : array of shape (K, d)
        The mean of those rows.
    covariances : array, optional
        Their covariance about that mean, divided by the count: of shape (K, d, d) for full
        covariances, (K, d) for variances in each feature, (K,) for their mean over the features,
        and (1, d, d) for one covariance pooled over all components.
    overlap : array of shape (K, K), optional
        The sum of the products of each two components' responsibilities.

    Examples
    --------
    >>> import numpy as np
    >>> a = Statistics(np.array([1.0]), np.array([[0.0]]), np.array([[0.0]]))
    >>> b = Statistics(np.array([3.0]), np.array([[4.0]]), np.array([[0.0]]))
    >>> (a + b).means, (a + b).covariances
    (array([[3.]]), array([[3.]]))
    """

    counts: Array
    means: Array
    covariances: Array | None = None
    overlap: Array | None = None

    def __add__(self, other: Statistics) -> Statistics:
        counts = self.counts + other.counts
        share = _share(other.counts, counts)
        step = other.means - self.means
        covariances = None
        if self.covariances is not None and other.covariances is not None:
            covariances = _added(self.covariances, other.covariances, counts, share, step)
        overlap = None
        if self.overlap is not None and other.overlap is not None:
            overlap = self.overlap + other.overlap
        return Statistics(counts, self.means + share[:, None] * step, covariances, overlap)

    def part(self, first: int, end: int) -> Statistics:
        """Return the statistics of some components, each with a covariance of its own."""
        some = slice(first, end)
        return Statistics(
            self.counts[some],
            self.means[some],
            None if self.covariances is None else self.covariances[some],
            None if self.overlap is None else self.overlap[some, some],
        )


def concatenated(statistics: Sequence[Statistics]) -> Statistics:
    """Put components side by side; a covariance that is pooled over some is repeated for each.

    Examples
    --------
    >>> import numpy as np
    >>> some = Statistics(np.ones(2), np.zeros((2, 1)), np.array([[[4.0]]]))
    >>> concatenated([some, some]).covariances.ravel()
    array([4., 4., 4., 4.])
    """
    covariances = [
        np.repeat(some.covariances, len(some.counts), axis=0)
        if len(some.covariances) != len(some.counts)
        else some.covariances
        for some in statistics
        if some.covariances is not None
    ]
    return Statistics(
        np.concatenate([some.counts for some in statistics]),
        np.concatenate([some.means for some in statistics]),
        np.concatenate(covariances) if covariances else None,
    )


def covariances_about(statistics: Statistics, means: Array) -> Array | None:
    """Return the covariances of the same rows about other means.

    Each gains the product of its step: S + (m - M)(m - M)', in the form of its type.

    Examples
    --------
    >>> import numpy as np
    >>> some = Statistics(np.array([2.0]), np.array([[1.0]]), np.array([[4.0]]))
    >>> covariances_about(some, np.array([[4.0]]))
    array([[13.]])
    """
    covariances = statistics.covariances
    if covariances is None:
        return None
    steps, counts = means - statistics.means, statistics.counts
    if covariances.ndim == 3 and len(covariances) != len(counts):  # pooled: all have one
        share = _share(counts, np.full_like(counts, counts.sum()))
        return np.asarray(covariances + (steps.T * share) @ steps)
    return np.asarray(covariances + products(steps, covariances.ndim))


def products(steps: Array, ndim: int) -> Array:
    """Return each row's product with itself, in the form of covariances with so many dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> products(np.array([[1.0, 3.0]]), ndim=1)
    array([5.])
    """
    if ndim == 3:
        return np.asarray(steps[:, :, None] * steps[:, None, :])
    squares = np.square(steps)
    return squares if ndim == 2 else np.asarray(squares.mean(axis=1))


def _share(part: Array, whole: Array) -> Array:
    """Return part / whole, 0 where there is nothing to share."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _added(a: Array, b: Array, counts: Array, share: Array, step: Array) -> Array:
    """Add covariances: within plus between (Chan, Golub and LeVeque, 1983).

    `share` is what `b` has of the counts, `step` what takes the means of `a` to those of `b`.
    """
    between = share * (1 - share)
    if a.ndim == 3 and len(a) != len(counts):  # pooled: all components have one
        part = _share(counts, np.full_like(counts, counts.sum()))
        of_b = part @ share
        return np.asarray((1 - of_b) * a + of_b * b + (step.T * (part * between)) @ step)
    axes = (slice(None),) + (None,) * (a.ndim - 1)
    return np.asarray(
        (1 - share)[axes] * a + share[axes] * b + between[axes] * products(step, a.ndim)
    )


def row_statistics(block: Array, *, full: bool = False) -> Statistics:
    """Return the statistics of a block of rows as one component.

    Parameters
    ----------
    block : array of shape (N, d)
        Some rows.
    full : bool
        Whether the covariance is a matrix, or a variance for each feature.

    Examples
    --------
    >>> import numpy as np
    >>> row_statistics(np.array([[0.0, 1.0], [2.0, 1.0]])).covariances
    array([[1., 0.]])
    """
    counts = np.array([float(len(block))])
    means = block.mean(axis=0, dtype=np.float64, keepdims=True)
    if full:
        offsets = block - means
        return Statistics(counts, means, (offsets.T @ offsets)[None] / len(block))
    return Statistics(counts, means, block.var(axis=0, dtype=np.float64, keepdims=True))

"""What a component is made of: statistics that add."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgem.typing import Array


@dataclass(frozen=True)
class Statistics:
    """The additive statistics of some components.

    They are kept as counts and means instead of counts and sums: the same information, without
    the cancellation that sums suffer on data far from the origin. Adding two keeps the promise
    of sums: the statistics of two sets of rows are the sum of their statistics.

    Attributes
    ----------
    counts : array of shape (K,)
        How many rows each component answers for, the sum of its responsibilities.
    means : array of shape (K, d)
        The mean of those rows.
    variances : array of shape (K, d), optional
        Their variance in each feature, where it is asked for.

    Examples
    --------
    >>> import numpy as np
    >>> a = Statistics(np.array([1.0]), np.array([[0.0]]))
    >>> b = Statistics(np.array([3.0]), np.array([[4.0]]))
    >>> (a + b).means
    array([[3.]])
    """

    counts: Array
    means: Array
    variances: Array | None = None

    def __add__(self, other: Statistics) -> Statistics:
        counts = self.counts + other.counts
        share = np.divide(other.counts, counts, out=np.zeros_like(counts), where=counts > 0)[
            :, None
        ]
        step = other.means - self.means
        means = self.means + share * step
        if self.variances is None or other.variances is None:
            return Statistics(counts, means)
        # Within plus between: Chan, Golub and LeVeque's update.
        variances = (
            (1 - share) * self.variances + share * other.variances + share * (1 - share) * step**2
        )
        return Statistics(counts, means, variances)


def row_statistics(block: Array) -> Statistics:
    """Return the statistics of a block of rows as one component.

    Examples
    --------
    >>> import numpy as np
    >>> row_statistics(np.array([[0.0, 1.0], [2.0, 1.0]])).variances
    array([[1., 0.]])
    """
    return Statistics(
        counts=np.array([float(len(block))]),
        means=block.mean(axis=0, dtype=np.float64, keepdims=True),
        variances=block.var(axis=0, dtype=np.float64, keepdims=True),
    )

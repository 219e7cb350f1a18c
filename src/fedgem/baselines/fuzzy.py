"""Fuzzy c-means, on rows in blocks: what two methods are made of."""

from __future__ import annotations

import numpy as np
from numba import njit

from fedgem.gaussian.kernels import FASTMATH
from fedgem.gaussian.statistics import Statistics
from fedgem.rows import Rows
from fedgem.typing import Array


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def _fuzzy_block(X, means, fuzziness, supports, weights, sums):  # type: ignore[no-untyped-def]
    """Add one block's sums of u, u^m and u^m times the offset; return its objective."""
    objective = 0.0
    squares, u = np.empty(len(means)), np.empty(len(means))
    for i in range(len(X)):
        least = np.inf
        for k in range(len(means)):
            square = 0.0
            for j in range(X.shape[1]):
                difference = X[i, j] - means[k, j]
                square += difference * difference
            squares[k] = square
            least = min(least, square)
        total = 0.0
        for k in range(len(means)):
            # (d_least / d_k)^(2 / (m - 1)), of squared distances; a row that is a centre is all its
            ratio = least / squares[k] if squares[k] > 0.0 else 1.0
            u[k] = ratio ** (1.0 / (fuzziness - 1.0))
            total += u[k]
        for k in range(len(means)):
            membership = u[k] / total
            weight = membership**fuzziness
            objective += weight * squares[k]
            supports[k] += membership
            weights[k] += weight
            for j in range(X.shape[1]):
                sums[k, j] += weight * (X[i, j] - means[k, j])
    return objective


def fuzzy_step(rows: Rows, means: Array, fuzziness: float) -> tuple[Array, Statistics, float]:
    """Take a step of fuzzy c-means (Bezdek, 1981).

    With d_k a row's distance to centre k, its membership is u_k = 1 / sum_j (d_k / d_j)^(2/(m-1)),
    and each centre moves to the mean of the rows weighted by u_k^m. One without rows stays.

    Parameters
    ----------
    rows : Rows
        The rows.
    means : array of shape (K, d)
        The centres.
    fuzziness : float
        The exponent m, above 1.

    Returns
    -------
    supports : array of shape (K,)
        The sums of u_k.
    statistics : Statistics
        The sums of u_k^m, and the new centres.
    objective : float
        The sum of u_k^m d_k^2 at the centres that were given.

    Examples
    --------
    >>> rows = Rows.from_array(np.array([[0.0], [4.0]]))
    >>> supports, statistics, objective = fuzzy_step(rows, np.array([[1.0], [3.0]]), 2.0)
    >>> supports, statistics.means.round(2).ravel(), round(objective, 2)
    (array([1., 1.]), array([0.05, 3.95]), 1.8)
    """
    supports, weights, sums = np.zeros(len(means)), np.zeros(len(means)), np.zeros(means.shape)
    objective = 0.0
    for block in rows.blocks():
        X = np.ascontiguousarray(block)
        objective += _fuzzy_block(X, means, fuzziness, supports, weights, sums)
    steps = np.divide(sums, weights[:, None], out=sums, where=weights[:, None] > 0)
    return supports, Statistics(weights, means + steps), objective

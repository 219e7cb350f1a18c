"""The E-step of a Gaussian mixture, and the statistics that the M-step needs."""

from __future__ import annotations

import math
from concurrent.futures import Executor

import numpy as np

from fedgem.gaussian.kernels import identity_block, padded
from fedgem.gaussian.statistics import Statistics
from fedgem.rows import Rows, map_in_order
from fedgem.typing import Array


def e_step(
    rows: Rows, means: Array, log_weights: Array, pool: Executor | None = None
) -> tuple[Statistics, float]:
    """Run the E-step (eq. estep) with identity covariances over all rows.

    Parameters
    ----------
    rows : Rows
        The rows, read block by block.
    means : array of shape (K, d)
        The current means.
    log_weights : array of shape (K,)
        Logarithms of the weights.
    pool : Executor, optional
        Threads for the blocks. The result has the same bits with any number of them.

    Returns
    -------
    statistics : Statistics
        Counts, and the means that the M-step (eq. gmm_m_step) chooses. A component that answers
        for no row at all stays where it is.
    log_likelihood : float
        The log-likelihood of the rows under the current means.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [2.0], [10.0]]))
    >>> statistics, _ = e_step(rows, np.array([[0.0], [10.0]]), np.log([0.5, 0.5]))
    >>> statistics.means.round(3)
    array([[ 1.],
           [10.]])
    """
    n_components, n_features = means.shape
    padded_means, padded_weights = padded(means, log_weights)

    def of_block(block: Array) -> tuple[Array, Array, float]:
        counts = np.zeros(padded_weights.size)
        sums = np.zeros((n_features, padded_weights.size))
        block = np.ascontiguousarray(block)
        return counts, sums, identity_block(block, padded_means, padded_weights, counts, sums)

    counts = np.zeros(padded_weights.size)
    sums = np.zeros((n_features, padded_weights.size))
    log_likelihood = 0.0
    pool = None if rows.fit_one_block else pool
    for block_counts, block_sums, block_likelihood in map_in_order(of_block, rows.blocks(), pool):
        counts += block_counts
        sums += block_sums
        log_likelihood += block_likelihood
    log_likelihood -= rows.n_kept * 0.5 * n_features * math.log(2 * math.pi)
    counts, sums = counts[:n_components], sums[:, :n_components].T
    steps = np.divide(sums, counts[:, None], out=np.zeros(means.shape), where=counts[:, None] > 0)
    return Statistics(counts, means + steps), log_likelihood

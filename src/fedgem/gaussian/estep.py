"""The E-step of a Gaussian mixture, and the statistics that the M-step needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fedgem.gaussian.covariances import Gaussians
from fedgem.gaussian.expansion import expanded_e_step
from fedgem.gaussian.kernels import identity_block, padded
from fedgem.gaussian.statistics import Statistics
from fedgem.rows import Rows, map_in_order
from fedgem.typing import Array


def e_step(
    rows: Rows,
    components: Gaussians,
    log_weights: Array,
    pool: Executor | None = None,
    *,
    overlap: bool = False,
) -> tuple[Statistics, float]:
    """Run the E-step (eq. estep) over all rows.

    Parameters
    ----------
    rows : Rows
        The rows, read block by block.
    components : Gaussians
        The current means and covariances.
    log_weights : array of shape (K,)
        Logarithms of the weights.
    pool : Executor, optional
        Threads for the blocks. The result has the same bits with any number of them.
    overlap : bool
        Whether to add up the products of the responsibilities as well.

    Returns
    -------
    statistics : Statistics
        Counts, and the means and covariances that the M-step (eq. gmm_m_step) chooses; no
        covariances where they are identities. A component that answers for no row at all stays
        as it is.
    log_likelihood : float
        The log-likelihood of the rows under the current components.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [2.0], [10.0]]))
    >>> halves = np.log([0.5, 0.5])
    >>> statistics, _ = e_step(rows, Gaussians(np.array([[0.0], [10.0]])), halves)
    >>> statistics.means.round(3)
    array([[ 1.],
           [10.]])
    >>> components = Gaussians(np.array([[0.0], [10.0]]), np.array([4.0, 4.0]), "spherical")
    >>> e_step(rows, components, halves)[0].covariances.round(3)
    array([1.   , 0.036])
    """
    if components.covariances is not None:
        bounds = np.array([0, len(components.means)])
        statistics, log_likelihoods = expanded_e_step(
            rows, components, log_weights, bounds, pool, overlap
        )
        return statistics, float(log_likelihoods[0])
    if overlap:
        unit = Gaussians(components.means, np.ones(len(components.means)), "spherical")
        statistics, log_likelihood = e_step(rows, unit, log_weights, pool, overlap=True)
        return replace(statistics, covariances=None), log_likelihood
    return _identity(rows, components.means, log_weights, pool)


def e_steps(
    rows: Rows,
    mixtures: Sequence[tuple[Gaussians, Array]],
    pool: Executor | None = None,
    *,
    overlap: bool = False,
) -> list[tuple[Statistics, float]]:
    """Run the E-step under several mixtures of one type, side by side in one pass over the rows.

    Parameters
    ----------
    rows, pool, overlap
        As in `e_step`.
    mixtures : sequence of (Gaussians, array)
        The components of each mixture, and the logarithms of their weights.

    Returns
    -------
    list of (Statistics, float)
        What `e_step` returns, for each mixture.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [2.0]]))
    >>> one = Gaussians(np.zeros((1, 1)), np.ones(1), "spherical"), np.zeros(1)
    >>> two = Gaussians(np.array([[0.0], [2.0]]), np.ones(2), "spherical"), np.log([0.5, 0.5])
    >>> [statistics.means.round(2).ravel().tolist() for statistics, _ in e_steps(rows, [one, two])]
    [[1.0], [0.24, 1.76]]
    """
    covariance_type = mixtures[0][0].covariance_type
    # What is tied is so within each mixture, and identities have a faster way.
    if len(mixtures) == 1 or covariance_type in ("tied", "identity"):
        return [e_step(rows, *mixture, pool, overlap=overlap) for mixture in mixtures]
    components, log_weights = zip(*mixtures, strict=True)
    side_by_side = Gaussians(
        np.concatenate([some.means for some in components]),
        np.concatenate([some.covariances for some in components]),
        covariance_type,
    )
    bounds = np.cumsum([0, *map(len, log_weights)])
    statistics, log_likelihoods = expanded_e_step(
        rows, side_by_side, np.concatenate(log_weights), bounds, pool, overlap
    )
    return [
        (statistics.part(first, end), log_likelihood)
        for (first, end), log_likelihood in zip(
            pairwise(bounds), log_likelihoods.tolist(), strict=True
        )
    ]


def _identity(
    rows: Rows, means: Array, log_weights: Array, pool: Executor | None
) -> tuple[Statistics, float]:
    """Run the E-step with identity covariances."""
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

"""The E-step of components with covariances, as two products of matrices.

The logarithm of a Gaussian density is linear in the products of the features:
log phi(x) = theta . (y_i y_j for j <= i, y, 1). So a tile of rows is mapped to these products
while it is in cache, one matrix product gives the logits, and another one, of the
responsibilities with the same products, gives the statistics: half the multiplications of a
triangular solve and a scatter matrix for every component.

Such sums cancel, and three things keep that harmless. Features are whitened first, y = W (x - c)
with c the mean of the means and W the inverse factor of the mean covariance. What may be lost is
bounded, for every component and tile, by the largest row sum of its precision (in y) times the
largest |y|^2. And where the bound exceeds `LIMIT`, because a component is much narrower than the
others or a row is far away, logits and statistics are computed directly: differences from the
mean, a triangular factor, and a scatter matrix in the original features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from fedgem.gaussian.covariances import Gaussians, not_positive_definite
from fedgem.gaussian.expansion_kernels import (
    LIMIT,
    NONE,
    NORM,
    PAIRS,
    SQUARES,
    collect_pairs,
    expand_pairs,
    expanded_block,
    factorise,
)
from fedgem.gaussian.kernels import LANES
from fedgem.gaussian.statistics import Statistics
from fedgem.rows import Rows, map_in_order
from fedgem.typing import Array, BoolArray, IntArray

# Products of matrices smaller than this stay on the thread that asks for them, in OpenBLAS. Tiles
# and chunks are cut so: the blocks of rows have their threads already.
SMALL_PRODUCT = 2**18 - 1
LARGEST_TILE = 32
# From here on there are so many pairs of features that the direct computation is as fast.
MOST_FEATURES = 128
# A variance this many times smaller than what it is the difference of is computed again,
CANCELLED = 1e9
# unless the difference is known to a part in 1e15 of the variance that the pass started from: a
# feature that does not vary, held up by `reg_covar`, is no reason to compute everything twice.
COLLAPSED = 1e-8


@dataclass(frozen=True)
class Expansion:
    """The logits of components as linear functions of products of whitened features.

    Attributes
    ----------
    kind : int
        Which products: of `PAIRS` of features, their `SQUARES`, the `NORM`, or `NONE` of these.
    centre : array of shape (d,)
        The mean of the components' means.
    factor, whiten : arrays of shape (d, d) or (1, d)
        What takes y to x - centre, and its inverse; lower triangular, or what is on a diagonal.
    theta : array of shape (K, F)
        The coefficients of the products, of y and of 1.
    reach : array of shape (K,)
        The largest row sum of each component's precision, in y.
    narrow : array of bool, shape (K,)
        Which components are too narrow for their logits and statistics to be expanded.
    inverses : array of shape (K, d, d), (1, d, d) or (K, 1, d)
        Inverse factors of the covariances, in x.
    constants : array of shape (K,)
        The logits at the components' means.
    """

    kind: int
    centre: Array
    factor: Array
    whiten: Array
    theta: Array
    reach: Array
    narrow: BoolArray
    inverses: Array
    constants: Array


@dataclass(frozen=True)
class Moments:
    """What a pass adds up; see `expanded_block`."""

    expanded: Array
    sums: Array
    scatter: Array
    overlap: Array
    log_likelihoods: Array


def expanded_e_step(
    rows: Rows,
    components: Gaussians,
    log_weights: Array,
    bounds: IntArray,
    pool: Executor | None,
    overlap: bool,
) -> tuple[Statistics, Array]:
    """Run the E-step over all rows, for components that have covariances.

    Those from ``bounds[m]`` to ``bounds[m + 1]`` are mixture m; returns a log-likelihood for each.

    Examples
    --------
    >>> rows = Rows.from_array(np.array([[0.0], [2.0]]))
    >>> components = Gaussians(np.zeros((1, 1)), np.ones((1, 1)), "diag")
    >>> one = np.array([0, 1])
    >>> expanded_e_step(rows, components, np.zeros(1), one, None, overlap=False)[0].covariances
    array([[1.]])
    """
    means = np.ascontiguousarray(components.means, dtype=np.float64)
    expansion = _expand(components, means, np.asarray(log_weights, np.float64))
    narrow = expansion.narrow
    moments = _add_up(rows, expansion, bounds, means, means, narrow, pool, overlap)
    statistics, lost = _statistics(components, expansion, moments, means, narrow)
    if lost.any():
        # What was lost is known well enough to start from: once more, from the means just found.
        narrow = narrow | (lost.any() if components.covariance_type == "tied" else lost)
        anchors = statistics.means
        moments = _add_up(rows, expansion, bounds, means, anchors, narrow, pool, overlap)
        statistics, _ = _statistics(components, expansion, moments, anchors, narrow)
    return statistics, moments.log_likelihoods


def _expand(components: Gaussians, means: Array, log_weights: Array) -> Expansion:
    """Expand the logits of components of any type."""
    shares = np.exp(log_weights - log_weights.max())
    shares /= shares.sum()
    covariances = np.ascontiguousarray(components.covariances, dtype=np.float64)
    expand = {"full": _expand_full, "tied": _expand_tied}.get(
        components.covariance_type, _expand_variances
    )
    return expand(means, covariances, log_weights, shares)


def _expand_full(means: Array, covariances: Array, log_weights: Array, shares: Array) -> Expansion:
    n_components, n_features = means.shape
    factors, inverses = _factors(covariances)
    mean_factor, whiten = _factors(
        (shares @ covariances.reshape(n_components, -1)).reshape(1, n_features, n_features)
    )
    constants = log_weights - _half_log_determinant(factors)
    centre = shares @ means
    offsets = (means - centre) @ whiten[0].T
    if n_features > MOST_FEATURES:
        theta = np.zeros((n_components, n_features + 1))
        kind, reach, narrow = NONE, np.ones(n_components), np.ones(n_components, np.bool_)
    else:
        theta = np.empty((n_components, n_features * (n_features + 1) // 2 + n_features + 1))
        kind, reach = PAIRS, np.empty(n_components)
        expand_pairs(inverses, mean_factor[0], offsets, theta, reach)
        theta[:, -1] += constants
        narrow = _too_narrow(reach, offsets)
    return Expansion(
        kind, centre, mean_factor[0], whiten[0], theta, reach, narrow, inverses, constants
    )


def _expand_tied(means: Array, covariance: Array, log_weights: Array, shares: Array) -> Expansion:
    factors, inverses = _factors(covariance[None])
    constants = log_weights - _half_log_determinant(factors)
    centre = shares @ means
    offsets = (means - centre) @ inverses[0].T
    reach = np.ones(len(means))
    # One for all: they share a covariance, so they are computed in the same way.
    narrow = np.full(len(means), _too_narrow(reach, offsets).any())
    constant = constants - 0.5 * np.square(offsets).sum(axis=1)
    theta = np.column_stack([offsets, constant])
    return Expansion(
        NONE, centre, factors[0], inverses[0], theta, reach, narrow, inverses, constants
    )


def _expand_variances(
    means: Array, covariances: Array, log_weights: Array, shares: Array
) -> Expansion:
    """Expand the logits of diagonal and spherical covariances."""
    n_features = means.shape[1]
    if not np.all(covariances > 0):
        raise not_positive_definite(int(np.argwhere(~(covariances > 0))[0, 0]))
    spherical = covariances.ndim == 1
    variances = covariances[:, None] if spherical else covariances
    mean_variances = shares @ variances
    precisions = mean_variances / variances
    deviations = np.broadcast_to(np.sqrt(variances), means.shape)
    constants = log_weights - np.log(deviations).sum(axis=1) - _half_log_two_pi(n_features)
    centre = shares @ means
    factor = np.ascontiguousarray(np.broadcast_to(np.sqrt(mean_variances), (1, n_features)))
    offsets = (means - centre) / factor
    linear = precisions * offsets
    constant = constants - 0.5 * (linear * offsets).sum(axis=1)
    reach = precisions.max(axis=1)
    return Expansion(
        NORM if spherical else SQUARES,
        centre,
        factor,
        1 / factor,
        np.column_stack([-0.5 * precisions, linear, constant]),
        reach,
        _too_narrow(reach, offsets),
        1 / deviations[:, None],
        constants,
    )


def _factors(covariances: Array) -> tuple[Array, Array]:
    """Return the lower Cholesky factors, and their inverses."""
    factors, inverses = np.zeros(covariances.shape), np.empty(covariances.shape)
    failed = factorise(covariances, factors, inverses)
    if failed >= 0:
        raise not_positive_definite(failed)
    return factors, inverses


def _half_log_determinant(factors: Array) -> Array:
    """Return half the logarithm of the determinant of 2 pi times the covariances."""
    diagonals = np.einsum("kii->ki", factors)
    return np.asarray(np.log(diagonals).sum(axis=1) + _half_log_two_pi(factors.shape[1]))


def _half_log_two_pi(n_features: int) -> float:
    return 0.5 * n_features * math.log(2 * math.pi)


def _too_narrow(reach: Array, offsets: Array) -> BoolArray:
    """Tell which components are too narrow, as far from the centre as they are."""
    return np.asarray(reach * (1 + np.square(offsets).sum(axis=1)) > LIMIT)


def tile_length(n_features: int) -> int:
    """Return how many rows are in cache at a time.

    Examples
    --------
    >>> tile_length(64), tile_length(100)
    (32, 24)
    """
    most = SMALL_PRODUCT // n_features**2
    return max(LANES, min(LARGEST_TILE, most - most % LANES))


def _chunked(theta: Array, tile: int) -> Array:
    """Cut coefficients of shape (K, F) into chunks of shape (n_chunks, K, chunk)."""
    n_components, n_products = theta.shape
    most = max(1, SMALL_PRODUCT // (tile * _lanes(n_components)))
    n_chunks = -(-n_products // most)
    chunk = -(-n_products // n_chunks)
    chunks = np.zeros((n_components, n_chunks * chunk))
    chunks[:, :n_products] = theta
    return np.ascontiguousarray(chunks.reshape(n_components, n_chunks, chunk).transpose(1, 0, 2))


def _lanes(n_components: int) -> int:
    return -(-n_components // LANES) * LANES


def _add_up(
    rows: Rows,
    expansion: Expansion,
    bounds: IntArray,
    means: Array,
    anchors: Array,
    narrow: BoolArray,
    pool: Executor | None,
    overlap: bool,
) -> Moments:
    """Pass over the rows."""
    tile = tile_length(means.shape[1])
    theta = _chunked(expansion.theta, tile)
    new = _empty_moments(theta, expansion, means, overlap, len(bounds) - 1)

    def of_block(block: Array) -> Moments:
        added = new()
        expanded_block(
            np.ascontiguousarray(block, dtype=np.float64),
            tile,
            bounds,
            expansion.kind,
            expansion.centre,
            expansion.whiten,
            theta,
            expansion.reach,
            narrow,
            means,
            expansion.inverses,
            expansion.constants,
            anchors,
            added.expanded,
            added.sums,
            added.scatter,
            added.overlap,
            added.log_likelihoods,
        )
        return added

    total = new()
    pool = None if rows.fit_one_block else pool
    for added in map_in_order(of_block, rows.blocks(), pool):
        for into, part in zip(vars(total).values(), vars(added).values(), strict=True):
            into += part
    return total


def _empty_moments(
    theta: Array, expansion: Expansion, means: Array, overlap: bool, n_mixtures: int
) -> Callable[[], Moments]:
    n_chunks, n_components, chunk = theta.shape

    def new() -> Moments:
        return Moments(
            np.zeros((n_chunks, chunk, _lanes(n_components))),
            np.zeros(means.shape),
            np.zeros(expansion.inverses.shape),
            np.zeros((n_components, n_components) if overlap else (0, 0)),
            np.zeros(n_mixtures),
        )

    return new


def _statistics(
    components: Gaussians,
    expansion: Expansion,
    moments: Moments,
    anchors: Array,
    narrow: BoolArray,
) -> tuple[Statistics, BoolArray]:
    """Turn what was added up into statistics; tell for which components too much cancelled."""
    n_components, n_features = anchors.shape
    products = moments.expanded.reshape(-1, moments.expanded.shape[2])
    products = products[: expansion.theta.shape[1], :n_components].T
    counts = products[:, -1].copy()
    answers = counts > 0
    inverse = (1 / np.where(answers, counts, 1.0))[:, None]
    y, steps = products[:, -1 - n_features : -1] * inverse, moments.sums * inverse
    factor = expansion.factor
    means = expansion.centre + (y @ factor.T if len(factor) == n_features else y * factor)
    if narrow.any():
        means[narrow] = anchors[narrow] + steps[narrow]
    if not answers.all():
        means[~answers] = components.means[~answers]
    collect = {"full": _full, "tied": _tied}.get(components.covariance_type, _variances)
    covariances, kept, cancelled = collect(expansion, products, moments, y, steps, inverse, narrow)
    before = np.asarray(components.covariances, np.float64)
    diagonal_before = before
    if components.covariance_type in ("full", "tied"):
        diagonal_before = np.diagonal(before, axis1=-2, axis2=-1)
    least = CANCELLED * np.maximum(kept, COLLAPSED * diagonal_before.reshape(-1, kept.shape[-1]))
    lost = (cancelled > least).any(axis=1) & answers
    if components.covariance_type == "tied":
        covariances = covariances if answers.any() else before[None]
    elif not answers.all():
        covariances[~answers] = before[~answers]
    overlap = moments.overlap if moments.overlap.size else None
    return Statistics(counts, means, covariances, overlap), lost


# Each of these returns covariances; their diagonals; and what these are the difference of.


def _full(
    expansion: Expansion,
    products: Array,
    moments: Moments,
    y: Array,
    steps: Array,
    inverse: Array,
    narrow: BoolArray,
) -> tuple[Array, Array, Array]:
    n_components, n_features = y.shape
    covariances = np.empty((n_components, n_features, n_features))
    cancelled = np.empty((n_components, n_features))
    if expansion.kind == PAIRS:
        # One layout, whatever the number of components: compiled once.
        sums = np.ascontiguousarray(products.T)
        collect_pairs(sums, inverse, y, expansion.factor, covariances, cancelled)
    if narrow.any():
        step = steps[narrow]
        second = moments.scatter[narrow] * inverse[narrow, :, None]
        second = 0.5 * (second + second.transpose(0, 2, 1))
        covariances[narrow] = second - step[:, :, None] * step[:, None, :]
        cancelled[narrow] = np.square(step)
    return covariances, np.einsum("kii->ki", covariances), cancelled


def _tied(
    expansion: Expansion,
    products: Array,
    moments: Moments,
    y: Array,
    steps: Array,
    inverse: Array,
    narrow: BoolArray,
) -> tuple[Array, Array, Array]:
    counts = products[:, -1]
    n_rows = counts.sum() or 1.0
    offsets = steps if narrow.any() else y
    second = moments.scatter[0] / n_rows
    between = (offsets.T * (counts / n_rows)) @ offsets
    covariance, cancelled = second - between, np.diagonal(between)
    if not narrow.any():
        covariance = expansion.factor @ covariance @ expansion.factor.T
        cancelled = np.square(expansion.factor) @ cancelled
    covariance = 0.5 * (covariance + covariance.T)
    return covariance[None], np.diagonal(covariance)[None], cancelled[None]


def _variances(
    expansion: Expansion,
    products: Array,
    moments: Moments,
    y: Array,
    steps: Array,
    inverse: Array,
    narrow: BoolArray,
) -> tuple[Array, Array, Array]:
    squared_factor = np.square(expansion.factor)
    spherical = expansion.kind == NORM
    second = products[:, : 1 if spherical else y.shape[1]] * inverse
    first = np.square(y)
    if spherical:
        second, first = second / y.shape[1], first.mean(axis=1, keepdims=True)
        squared_factor = squared_factor[:, :1]
    variances, cancelled = (second - first) * squared_factor, second * squared_factor
    if narrow.any():
        exact, step = moments.scatter[narrow, 0] * inverse[narrow], np.square(steps[narrow])
        if spherical:
            exact, step = exact.mean(axis=1, keepdims=True), step.mean(axis=1, keepdims=True)
        variances[narrow], cancelled[narrow] = exact - step, step
    variances = np.maximum(variances, 0.0)
    return variances[:, 0] if spherical else variances, variances, cancelled

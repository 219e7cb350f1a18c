"""How foreign rows are to every known cluster, as p-values that the clients' own rows calibrate.

A row's distance is that to the nearest Gaussian: the squared Mahalanobis distance of its
coordinates plus that of what the coordinates leave out. Were clusters Gaussians, it would follow a
chi-square distribution; they are not, so that its distribution is taken from data. Each client
counts its rows on a fixed grid of scores, counts add, and a row's p-value is the share of all rows
with a larger score. Rows that trained lie closer to the clusters than new ones do; each is taken
as far from them as it would be had it not trained (`left_out`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit, softmax

from fedgem.fitted import FittedMixture
from fedgem.gaussian.covariances import Gaussians, of_components, per_component, squared_distances
from fedgem.gaussian.density import log_joint, log_of
from fedgem.messages import Message, NoveltyReply, NoveltyRequest, SharedPart
from fedgem.typing import Array

# The edges of the bins that scores are counted in.
GRID = np.linspace(-8.0, 12.0, 401)
LEVELS = 41  # p-values that are read off the counts; those between are interpolated
TAIL = 10.0  # rows beyond the first and the last of them


def scores(distances: Array, n_features: int) -> Array:
    """Return squared distances on a scale that a grid of moderate size covers.

    The cube root of a chi-square variable is all but normal (Wilson and Hilferty, 1931); where
    distances are larger than a normal variable ever is, asinh takes their logarithms.

    Examples
    --------
    >>> scores(np.array([0.0, 4.0, 1e9]), 4).round(1)
    array([-2.1,  0.2,  8.6])
    """
    variance = 2 / (9 * n_features)
    return np.asarray(np.arcsinh((np.cbrt(distances / n_features) - 1 + variance) / variance**0.5))


def left_out(
    distances: Array, responsibilities: Array, counts: Array, shape_counts: Array
) -> Array:
    """Return squared Mahalanobis distances from Gaussians that a row did not help to estimate.

    A row with responsibility r among n rows moves the mean towards itself and widens the
    covariance; the Sherman-Morrison formula takes that back:

        D'^2 = D^2 (1 - r/s) / ((1 - r/n)^2 (1 - r D^2 / (s (1 - r/n)))),

    with s for the rows that the covariance is the mean of.

    Parameters
    ----------
    distances : array
        D^2.
    responsibilities : array
        How much of the row each Gaussian answers for, 0 if the row did not train.
    counts, shape_counts : arrays
        Behind the Gaussian's mean, and behind each direction of its covariance.

    Examples
    --------
    Of the numbers 0, 0, 3, the last has the squared distance 2; without it there is no variance.

    >>> left_out(np.array([2.0]), np.array([1.0]), np.array([3.0]), np.array([3.0])) > 1e6
    array([ True])
    """
    tiny = np.finfo(np.float64).eps
    moved = np.maximum(1 - responsibilities / counts, tiny)
    widened = np.maximum(1 - responsibilities * distances / (shape_counts * moved), tiny)
    fewer = np.maximum(1 - responsibilities / shape_counts, tiny)
    return np.asarray(distances * fewer / (moved**2 * widened))


def row_scores(
    coordinates: Array,
    left_over: Array,
    components: Gaussians,
    weights: Array | None = None,
    counts: Array | None = None,
) -> Array:
    """Return the score of each row.

    Parameters
    ----------
    coordinates : array of shape (N, r)
        The rows in the mixture's subspace.
    left_over : array of shape (N, d - r)
        What these leave out, in standard deviations.
    components : Gaussians
        The mixture's Gaussians.
    weights, counts : arrays of shape (M,), optional
        Where the rows trained: the weights of the Gaussians at the rows' client, and the rows of
        all clients behind each.

    Examples
    --------
    >>> row_scores(np.array([[0.0], [9.0]]), np.zeros((2, 0)), Gaussians(np.zeros((1, 1)))).round(1)
    array([-1.3,  2.7])
    """
    distances = squared_distances(coordinates, components)
    rest = np.square(left_over).sum(axis=1)
    if weights is not None and counts is not None:
        counts, total = np.maximum(counts, 1e-9), np.maximum(counts.sum(), 1e-9)
        responsibilities = softmax(log_joint(coordinates, components, log_of(weights)), axis=1)
        # What the coordinates leave out has the covariance of all rows together.
        whole = distances.min(axis=1) + rest
        rest = rest * left_out(whole, np.ones(1), total, total) / np.maximum(whole, 1e-300)
        behind = _shape_counts(components, counts, float(total))
        distances = left_out(distances, responsibilities, counts, behind)
    n_features = coordinates.shape[1] + left_over.shape[1]
    return scores(distances.min(axis=1) + rest, n_features)


def _shape_counts(components: Gaussians, counts: Array, total: float) -> Array:
    """Return how many rows there are behind each direction of the Gaussians' covariances.

    `fedgem.gaussian.mixture.regularised` adds d rows of the pooled covariance to n of a
    Gaussian's own, and a row is in both: it has 1 + d / (N + d) parts in n + d.
    """
    n_features, covariance_type = components.means.shape[1], components.covariance_type
    behind = (counts + n_features) / (1 + n_features / (total + n_features))
    if covariance_type == "identity":
        return np.full(len(counts), np.inf)
    # One variance for each feature, or for all, is known better than one for each direction.
    return np.asarray(behind * (n_features if covariance_type in ("diag", "spherical") else 1))


def counted(scores: Array) -> Array:
    """Return how many scores fall in each bin of the grid; those outside go to the ends.

    Examples
    --------
    >>> counted(np.array([0.01, 0.02, 99.0])).nonzero()[0]
    array([160, 399])
    """
    counts, _ = np.histogram(np.clip(scores, GRID[0], GRID[-1]), GRID)
    return counts.astype(np.float64)


def p_values(scores: Array, counts: Array) -> Array:
    """Return the share of the counted rows that have larger scores.

    The logit of the share is read off at `LEVELS` levels and linear in between. Beyond the last,
    it falls as steeply as the mean of the scores there says, so that the share tends to zero.

    Parameters
    ----------
    scores : array of shape (N,)
        Of some rows.
    counts : array of shape (B,)
        How many rows there are in each bin of the grid.

    Examples
    --------
    >>> known = np.random.default_rng(0).normal(size=10_000)
    >>> p_values(np.array([-9.0, 0.0, 2.33, 9.0]), counted(known)).round(3)
    array([1.   , 0.498, 0.009, 0.   ])
    """
    total = counts.sum()
    least = min(TAIL, total / 4) / total
    levels = np.linspace(logit(1 - least), logit(least), LEVELS)
    below = np.concatenate([[0.0], counts.cumsum()]) / total
    knots = np.interp(expit(-levels), below, GRID)
    beyond = np.clip(GRID[1:], knots[-1], None) - np.clip(GRID[:-1], knots[-1], None)
    # The mean excess is the integral of the share above, here by the trapezoidal rule.
    excess = (beyond * (1 - 0.5 * (below[1:] + below[:-1]))).sum() / least
    before = (levels[0] - levels[1]) / max(knots[1] - knots[0], 1e-9)
    values = np.interp(scores, knots, levels)
    values = values + np.maximum(knots[0] - scores, 0.0) * before
    return np.asarray(
        expit(values - np.maximum(scores - knots[-1], 0.0) / max(excess, GRID[1] - GRID[0]))
    )


def novelty(X: Array, mixture: FittedMixture, counts: Array) -> Array:
    """Return the p-values of rows.

    Parameters
    ----------
    X : array of shape (N, d)
        The rows.
    mixture : FittedMixture
        What is known.
    counts : array of shape (B,)
        The calibration.

    Examples
    --------
    >>> from fedgem.gaussian.subspace import whole
    >>> one = Gaussians(np.zeros((1, 2))), np.zeros(1, np.intp), np.ones(1)
    >>> mixture = FittedMixture(np.zeros(2), np.ones(2), whole(np.ones(2)), *one)
    >>> known = np.random.default_rng(0).normal(size=(1000, 2))
    >>> counts = counted(row_scores(known, np.zeros((1000, 0)), one[0]))
    >>> novelty(np.array([[0.0, 0.0], [3.0, 3.0]]), mixture, counts).round(3)
    array([0.999, 0.001])
    """
    scaled = (X.astype(np.float64) - mixture.shift) / mixture.scale
    subspace = mixture.subspace
    left_over = (scaled - subspace.centre) @ subspace.rest
    return p_values(row_scores(subspace.project(scaled), left_over, mixture.components), counts)


@dataclass(frozen=True)
class Calibration:
    """One exchange that counts the scores of all clients' rows.

    Attributes
    ----------
    asked : dict of str to NoveltyRequest
        What each client is asked.
    counts : array of shape (B,), optional
        The answer.
    round : int
        The round that comes next.
    """

    asked: Mapping[str, NoveltyRequest]
    counts: Array | None = None
    round: int = 0

    @classmethod
    def of(cls, mixture: FittedMixture, weights: Mapping[str, Array], n_rows: Array) -> Calibration:
        """Ask clients for their rows' scores.

        Parameters
        ----------
        mixture : FittedMixture
            What their rows trained.
        weights : dict of str to array of shape (K,)
            Each client's share of each cluster.
        n_rows : array of shape (K,)
            How many rows of all clients each cluster has.
        """
        components, of_parts = mixture.components, mixture.shares
        covariances, counts = per_component(components), n_rows[mixture.cluster_of] * of_parts
        asked = {
            name: NoveltyRequest(
                SharedPart(components.means, own[mixture.cluster_of] * of_parts, covariances),
                counts,
                mixture.subspace,
            )
            for name, own in weights.items()
        }
        return cls(asked)

    def requests(self) -> Mapping[str, Message]:
        """Ask every client once."""
        return self.asked if self.counts is None else {}

    def advance(self, replies: Mapping[str, Any], seconds: float = 0.0) -> Calibration:
        """Add up what the clients said, in the clients' order."""
        total = np.zeros(len(GRID) - 1)
        for name in self.asked:
            if name in replies:
                total = total + replies[name].counts
        return replace(self, counts=total, round=1)


def answer(blocks: Any, request: NoveltyRequest) -> NoveltyReply:
    """Count a client's rows; its side of the exchange.

    Parameters
    ----------
    blocks : iterable of arrays
        The rows, scaled.
    request : NoveltyRequest
        What is asked.
    """
    part, subspace = request.part, request.subspace
    components = of_components(part.means, part.covariances)
    total = np.zeros(len(GRID) - 1)
    for block in blocks:
        left_over = (block - subspace.centre) @ subspace.rest
        found = row_scores(
            subspace.project(block), left_over, components, part.weights, request.counts
        )
        total += counted(found)
    return NoveltyReply(total)

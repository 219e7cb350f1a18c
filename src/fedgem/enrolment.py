"""A client that arrives after training: which known clusters it has, and which are new.

All of it happens at the newcomer, which knows the shared mixture and sends summaries:

1. New Gaussians, more and more of them, are started on the rows that are foreign to all known
   clusters and trained beside them by EM, in which the known ones stay as they are. So many are
   kept as maximise the BIC: each has to raise the log-likelihood by log(N_g)/2 for each of its
   parameters. Each must also be foreign itself (`_is_foreign`).
2. Known clusters are dropped, the smallest first, where that costs no more than log(N_g)/2.

A new cluster may differ from the known ones in directions that their principal subspace leaves
out. All is therefore done in coordinates that leave nothing out (`unfolded`), in which the
mixture is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import softmax

from fedgem.fitted import FittedMixture
from fedgem.gaussian.covariances import (
    CovarianceType,
    Gaussians,
    matrices,
    of_components,
    per_component,
)
from fedgem.gaussian.density import log_joint, log_of
from fedgem.gaussian.estep import e_step
from fedgem.gaussian.mixture import PATIENCE, SMALL_GAIN, fit_mixture
from fedgem.gaussian.shrinkage import project, shrink
from fedgem.gaussian.statistics import Statistics
from fedgem.gaussian.subspace import Subspace
from fedgem.messages import EnrolReply, EnrolRequest, Message, SharedPart
from fedgem.novelty import p_values, row_scores
from fedgem.rows import Rows
from fedgem.typing import Array, BoolArray, IntArray

# Rows below this novelty are where new clusters are looked for.
FOREIGN = 0.01
CALIBRATED_WITHIN = 2  # novelty may be off by this factor
FEWEST = 2  # rows of a cluster: one alone is an outlier


def unfolded(mixture: FittedMixture) -> FittedMixture:
    """Return the same mixture in coordinates that leave nothing out.

    What the coordinates left out becomes coordinates with mean zero and unit variance in each
    cluster.

    Examples
    --------
    >>> from fedgem.gaussian.subspace import principal
    >>> total = Statistics(np.array([9.0]), np.zeros((1, 2)), np.diag([4.0, 0.01])[None])
    >>> one = Gaussians(np.zeros((1, 1)), np.ones((1, 1, 1)), "full")
    >>> mixture = FittedMixture(
    ...     np.zeros(2), np.ones(2), principal(total), one, np.zeros(1, np.intp), np.ones(1)
    ... )
    >>> X = np.array([[1.0, 2.0]])
    >>> bool(np.isclose(mixture.log_densities(X), unfolded(mixture).log_densities(X))[0, 0])
    True
    """
    old, components = mixture.subspace, mixture.components
    if old.rest.shape[1] == 0:
        return mixture
    left_out = old.rest_covariance @ old.rest
    subspace = Subspace(
        old.centre,
        np.hstack([old.basis, old.rest]),
        np.vstack([old.back, left_out.T]),
        old.rest[:, :0],
        np.zeros_like(old.rest_covariance),
        old.log_volume,
    )
    means, covariances = padded(components.means, matrices(components), len(old.centre))
    if components.covariance_type == "tied":
        covariances = covariances[0]
    padded_components = Gaussians(means, covariances, components.covariance_type)
    return replace(mixture, subspace=subspace, components=padded_components)


def padded(means: Array, covariances: Array, n_features: int) -> tuple[Array, Array]:
    """Return Gaussians with more features, of mean zero and variance one.

    Examples
    --------
    >>> padded(np.array([[3.0]]), np.array([[[4.0]]]), 2)[1]
    array([[[4., 0.],
            [0., 1.]]])
    """
    n, r = means.shape
    wider, shapes = np.zeros((n, n_features)), np.tile(np.eye(n_features), (n, 1, 1))
    wider[:, :r], shapes[:, :r, :r] = means, covariances
    return wider, shapes


def request_for(mixture: FittedMixture, n_rows: Array, calibration: Array) -> EnrolRequest:
    """Return what a newcomer is sent.

    Parameters
    ----------
    mixture : FittedMixture
        The clusters, unfolded.
    n_rows : array of shape (K,)
        How many rows each has.
    calibration : array of shape (B,)
        Of novelty.
    """
    components = mixture.components
    counts = n_rows[mixture.cluster_of] * mixture.shares + np.finfo(np.float64).tiny
    return EnrolRequest(
        SharedPart(components.means, mixture.shares, per_component(components)),
        mixture.cluster_of,
        mixture.subspace,
        np.tensordot(counts / counts.sum(), matrices(components), 1),
        calibration,
    )


@dataclass(frozen=True)
class _Fit:
    """A mixture at the newcomer: components, each one's cluster and share, clusters' weights."""

    components: Gaussians
    cluster_of: IntArray
    shares: Array
    weights: Array
    counts: Array
    statistics: Statistics | None = None
    log_likelihood: float = -np.inf

    @property
    def part_weights(self) -> Array:
        return np.asarray(self.weights[self.cluster_of] * self.shares)


def answer(
    rows: Rows,
    request: EnrolRequest,
    covariance_type: CovarianceType,
    n_init: int,
    seed: list[int],
    pool: Executor | None = None,
) -> EnrolReply:
    """Find the newcomer's clusters; its side of the exchange.

    Parameters
    ----------
    rows : Rows
        Its rows, scaled.
    request : EnrolRequest
        The known clusters.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        The form of the covariances.
    n_init : int
        How many starts to try for new clusters.
    seed : list of int
        Decides the draws.
    pool : Executor, optional
        Threads for the blocks of many rows.
    """
    rows = rows.projected(request.subspace.centre, request.subspace.basis)
    known = of_components(request.part.means, request.part.covariances)
    n_known, n = int(request.cluster_of.max()) + 1, rows.n_kept
    n_features = rows.shape[1]
    novelty = np.concatenate(
        [
            p_values(row_scores(b, np.zeros((len(b), 0)), known), request.calibration)
            for b in rows.blocks()
        ]
    )
    foreign = replace(rows, keep=novelty < FOREIGN)
    equal = np.full(n_known, 1 / n_known)
    best = _trained(
        rows,
        _Fit(known, request.cluster_of, request.part.weights, equal, equal),
        0,
        covariance_type,
        request.prior,
        pool,
    )
    shapes = {"full": n_features * (n_features + 1) // 2, "diag": n_features, "spherical": 1}
    n_parameters = n_features + 1 + shapes.get(covariance_type, 0)
    n_new, score = 0, best.log_likelihood
    for more in range(1, foreign.n_kept // FEWEST + 1):
        start, _ = fit_mixture(
            foreign, more, covariance_type, np.diagonal(request.prior), n_init, seed, pool
        )
        fit = _with_new(best, n_new, start, request.prior)
        fit = _trained(rows, fit, more, covariance_type, request.prior, pool)
        penalised = fit.log_likelihood - 0.5 * more * n_parameters * np.log(n)
        if penalised > score and _is_foreign(rows, fit, more, novelty).all():
            best, n_new, score = fit, more, penalised
        elif more - n_new >= PATIENCE:
            break
    for k in np.argsort(best.counts[:n_known], kind="stable"):
        weights = np.where(np.arange(len(best.weights)) == k, 0.0, best.weights)
        if weights.sum() > 0:
            less = replace(best, weights=weights / weights.sum())
            less = _trained(rows, less, 0, covariance_type, request.prior, pool)
            if best.log_likelihood - less.log_likelihood <= 0.5 * np.log(n):
                best = less
    new = best.cluster_of >= n_known
    covariances = best.components.covariances
    assert best.statistics is not None
    return EnrolReply(
        n,
        best.weights,
        best.statistics,
        SharedPart(
            best.components.means[new],
            best.shares[new],
            None if covariances is None else covariances[new],
        ),
    )


def _with_new(fit: _Fit, n_new: int, start: Statistics, prior: Array) -> _Fit:
    """Return a fit whose new Gaussians, `n_new` so far, are those of a start."""
    n_parts, n_known = len(fit.cluster_of) - n_new, len(fit.weights) - n_new
    n = len(start.counts)
    old = fit.components
    covariances = old.covariances
    if covariances is not None:
        form = of_components(old.means[:1], covariances[:1]).covariance_type
        common = np.broadcast_to(project(prior, form), (n, *covariances.shape[1:]))
        covariances = np.concatenate([covariances[:n_parts], common])
    means = np.concatenate([old.means[:n_parts], start.means])
    weights = np.concatenate([fit.weights[:n_known] + 1e-3, start.counts / start.counts.sum()])
    return _Fit(
        of_components(means, covariances),
        np.concatenate([fit.cluster_of[:n_parts], n_known + np.arange(n)]),
        np.concatenate([fit.shares[:n_parts], np.ones(n)]),
        weights / weights.sum(),
        weights,
    )


def _trained(
    rows: Rows,
    fit: _Fit,
    n_new: int,
    covariance_type: CovarianceType,
    prior: Array,
    pool: Executor | None,
) -> _Fit:
    """Run EM over the weights and over the last `n_new` Gaussians; the others stay."""
    n_parts, before = len(fit.cluster_of), -np.inf
    new = np.arange(n_parts - n_new, n_parts)
    while True:
        has = np.flatnonzero(fit.weights[fit.cluster_of] > 0)
        old = fit.components
        covariances = None if old.covariances is None else old.covariances[has]
        statistics, log_likelihood = e_step(
            rows, of_components(old.means[has], covariances), np.log(fit.part_weights[has]), pool
        )
        counts, means = np.zeros(n_parts), old.means.copy()
        counts[has], means[has] = statistics.counts, statistics.means
        own = np.bincount(fit.cluster_of, counts, len(fit.weights)).astype(np.float64)
        fit = replace(
            fit, counts=own, statistics=Statistics(counts, means), log_likelihood=log_likelihood
        )
        if log_likelihood - before < SMALL_GAIN * rows.n_kept:
            return fit
        before = log_likelihood
        # A cluster without rows is not given up for good: the next step may find some.
        weights = np.where(fit.weights > 0, np.maximum(own, 1e-9), 0.0)
        components = fit.components
        if n_new:
            moved, shapes = old.means.copy(), old.covariances
            moved[new] = means[new]
            if shapes is not None and covariance_type != "tied":
                shapes = shapes.copy()
                form = of_components(old.means, shapes).covariance_type
                assert statistics.covariances is not None
                shapes[new] = shrink(
                    counts[new],
                    statistics.covariances[-n_new:],
                    project(prior, form),
                    float(rows.shape[1]),
                )
            components = of_components(moved, shapes)
        fit = replace(fit, components=components, weights=weights / weights.sum())


def _is_foreign(rows: Rows, fit: _Fit, n_new: int, novelty: Array) -> BoolArray:
    """Tell which of the last `n_new` Gaussians are new clusters.

    Most of a new cluster's rows are foreign: their median novelty t is below `FOREIGN`. And they
    are no tail of the known clusters, N_g t of whose rows look as foreign by chance: fewer, even
    if novelty is off by a factor, than the half of its own that do.
    """
    log_weights = log_of(fit.part_weights)
    own = np.concatenate(
        [
            softmax(log_joint(b, fit.components, log_weights), axis=1)[:, -n_new:]
            for b in rows.blocks()
        ]
    )
    order = np.argsort(novelty)
    below = np.cumsum(own[order], axis=0)
    counts = below[-1]
    medians = novelty[order][np.minimum((below < 0.5 * counts).sum(axis=0), len(order) - 1)]
    by_chance = CALIBRATED_WITHIN * rows.n_kept * medians
    return np.asarray((counts > FEWEST - 0.5) & (medians < FOREIGN) & (by_chance < counts / 2))


def extended(mixture: FittedMixture, reply: EnrolReply) -> FittedMixture:
    """Return a mixture with the clusters that a newcomer brought, after all others.

    Parameters
    ----------
    mixture : FittedMixture
        What is known, unfolded.
    reply : EnrolReply
        What the newcomer said.
    """
    old, new = mixture.components, reply.new
    covariances = old.covariances
    if covariances is not None and new.covariances is not None and old.covariance_type != "tied":
        covariances = np.concatenate([covariances, new.covariances])
    n_new = len(new.means)
    return replace(
        mixture,
        components=Gaussians(
            np.concatenate([old.means, new.means]), covariances, old.covariance_type
        ),
        cluster_of=np.concatenate([mixture.cluster_of, mixture.n_clusters + np.arange(n_new)]),
        shares=np.concatenate([mixture.shares, np.ones(n_new)]),
    )


@dataclass(frozen=True)
class Enrolment:
    """One exchange with a newcomer.

    Attributes
    ----------
    name : str
        The newcomer.
    request : EnrolRequest
        What it is asked.
    reply : EnrolReply, optional
        The answer.
    round : int
        The round that comes next.
    """

    name: str
    request: EnrolRequest
    reply: EnrolReply | None = None
    round: int = 0

    def requests(self) -> Mapping[str, Message]:
        """Ask once."""
        return {self.name: self.request} if self.reply is None else {}

    def advance(self, replies: Mapping[str, Any], seconds: float = 0.0) -> Enrolment:
        """Keep the answer."""
        return replace(self, reply=replies.get(self.name), round=self.round + 1)

"""How far each client relies on the others' rows.

A shared cluster serves a client whose rows of it look like everybody's, and fails one whose own
look different. Others' rows may count less at a client than its own: with n and C its own
statistics of a component, and those of all others discounted by a factor rho (a power prior;
Ibrahim and Chen, 2000), the client's component is that of their sum. rho = 1 is the shared
mixture, rho = 0 no federation at all. Statistics add up, so that those of all others are the sum
less the client's own, and each client can tell by rows that it holds out which rho predicts them
best, with nothing of its own among what it compares with.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from fedgem.gaussian.covariances import CovarianceType, Gaussians
from fedgem.gaussian.density import log_joint
from fedgem.gaussian.estep import e_step
from fedgem.gaussian.initialisation import SAMPLE
from fedgem.gaussian.mixture import regularised
from fedgem.gaussian.statistics import Statistics, products
from fedgem.messages import Message, RelianceRequest, SharedPart, ShareRequest
from fedgem.rows import Rows
from fedgem.typing import Array, IntArray

RELIANCES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.0)
N_FOLDS = 2
# Others count less only where that is better beyond chance: by this many standard errors.
SIGNIFICANT = 2.0


def discounted(own: Statistics, others: Statistics, reliance: float) -> Statistics:
    """Return a client's statistics and a share of all others'.

    Examples
    --------
    >>> own = Statistics(np.array([1.0]), np.array([[0.0]]))
    >>> others = Statistics(np.array([10.0]), np.array([[4.0]]))
    >>> discounted(own, others, reliance=0.3).means
    array([[3.]])
    """
    return own + replace(others, counts=reliance * others.counts)


def without(total: Statistics, own: Statistics, covariance_type: CovarianceType) -> Statistics:
    """Return the statistics of all other clients: the sum less a client's own.

    Examples
    --------
    >>> own = Statistics(np.array([1.0]), np.array([[0.0]]))
    >>> others = Statistics(np.array([3.0]), np.array([[4.0]]))
    >>> without(own + others, own, "identity").means
    array([[4.]])
    """
    # Less than a row is rounding, or one that nobody else would miss.
    counts = np.where(total.counts - own.counts < 1.0, 0.0, total.counts - own.counts)
    known = np.where(counts > 0, counts, 1.0)
    step = own.counts[:, None] * (total.means - own.means) / known[:, None]
    covariances = total.covariances
    if covariances is not None and own.covariances is not None:
        ndim = covariances.ndim
        axes = (slice(None),) + (None,) * (ndim - 1)
        between = own.counts[axes] * products(own.means - total.means, ndim)
        between = between + counts[axes] * products(step, ndim)
        n_total, n_own, n = total.counts[axes], own.counts[axes], known[axes]
        if covariance_type == "tied":
            between = between.sum(axis=0, keepdims=True)
            n_total, n_own = total.counts.sum(keepdims=True), own.counts.sum(keepdims=True)
            n = np.maximum(counts.sum(keepdims=True), 1.0)
        covariances = (n_total * covariances - n_own * own.covariances - between) / n
        if ndim < 3:
            covariances = np.maximum(covariances, 0.0)
    return Statistics(counts, total.means + step, covariances)


def best_reliance(
    rows: Rows,
    part: SharedPart,
    others: Statistics,
    floor: Array,
    covariance_type: CovarianceType,
    seed: list[int],
    pool: Executor | None = None,
) -> float:
    """Return what a client's held-out rows say that others' rows should count.

    Parameters
    ----------
    rows : Rows
        The client's rows.
    part : SharedPart
        The components that it has, and its weights.
    others : Statistics
        All other clients' statistics of these components.
    floor : array of shape (d,)
        Variances that keep covariances positive definite.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        Their form.
    seed : list of int
        Deals the rows to the folds.
    pool : Executor, optional
        Threads.
    """
    rng = np.random.default_rng(seed)
    sample = rows.sample(SAMPLE, rng).astype(np.float64)
    fold_of = rng.permutation(len(sample)) % N_FOLDS
    components = Gaussians(part.means, part.covariances, covariance_type)
    log_weights = np.log(part.weights)
    gains = np.zeros((len(RELIANCES), len(sample)))
    for fold in range(N_FOLDS):
        held_out = fold_of == fold
        if held_out.all() or not held_out.any():
            return 1.0
        own, _ = e_step(Rows.from_array(sample[~held_out]), components, log_weights, pool)
        for r, reliance in enumerate(RELIANCES):
            candidate = regularised(discounted(own, others, reliance), covariance_type, floor)
            try:
                joint = log_joint(sample[held_out], candidate, log_weights)
                gains[r, held_out] = logsumexp(joint, axis=1)
            except ValueError:  # no covariance at all, from too few rows
                gains[r, held_out] = -np.inf
    with np.errstate(invalid="ignore"):
        gains = gains - gains[0]
    means = np.where(np.isfinite(gains).all(axis=1), gains.mean(axis=1), -np.inf)
    best = int(means.argmax())
    error = gains[best].std() / np.sqrt(len(sample))
    return RELIANCES[best] if means[best] > SIGNIFICANT * error else 1.0


@dataclass(frozen=True)
class Reliance:
    """Two exchanges: the clients' statistics of a mixture, and what others' should count.

    Attributes
    ----------
    parts : dict of str to SharedPart
        What each client is sent.
    has : dict of str to array
        Which components of the mixture those are.
    n_components : int
        How many components the mixture has.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        Their form.
    floor : array of shape (d,)
        Variances that keep covariances positive definite.
    own, others : dict of str to Statistics
        The clients' statistics, and for each those of all others.
    reliances : dict of str to float
        The answer.
    round : int
        The round that comes next.
    """

    parts: Mapping[str, SharedPart]
    has: Mapping[str, IntArray]
    n_components: int
    covariance_type: CovarianceType
    floor: Array
    own: Mapping[str, Statistics] = field(default_factory=dict)
    others: Mapping[str, Statistics] = field(default_factory=dict)
    reliances: Mapping[str, float] = field(default_factory=dict)
    round: int = 0

    def requests(self) -> dict[str, Message]:
        """Ask for statistics first, then for the reliances."""
        if self.round == 0:
            return {
                name: ShareRequest(0, overlap=False, parts=(part,))
                for name, part in self.parts.items()
            }
        if self.round == 1:
            return {
                name: RelianceRequest(self.parts[name], others, self.floor)
                for name, others in self.others.items()
            }
        return {}

    def advance(self, replies: Mapping[str, Any], seconds: float = 0.0) -> Reliance:
        """Take the clients' answers."""
        if self.round == 1:
            found: dict[str, float] = {name: reply.reliance for name, reply in replies.items()}
            return replace(self, reliances=found, round=2)
        if not replies:
            return replace(self, round=2)
        own = {name: reply.statistics[0] for name, reply in replies.items()}
        total = self._total(own)
        others = {
            name: without(_of(total, self.has[name]), some, self.covariance_type)
            for name, some in own.items()
        }
        return replace(self, own=own, others=others, round=1)

    def _total(self, own: Mapping[str, Statistics]) -> Statistics:
        """Add up the clients' statistics over all components of the mixture."""
        total: Statistics | None = None
        for name, some in own.items():
            spread = _spread(some, self.has[name], self.n_components)
            total = spread if total is None else total + spread
        assert total is not None
        return total

    def components_of(self, name: str) -> Gaussians:
        """Return what a client's components are where others' rows count less."""
        mixed = discounted(self.own[name], self.others[name], self.reliances[name])
        return regularised(mixed, self.covariance_type, self.floor)


def _spread(some: Statistics, has: IntArray, n_components: int) -> Statistics:
    """Return statistics of some components as those of all, the others without rows."""

    def spread(values: Array) -> Array:
        into = np.zeros((n_components, *values.shape[1:]))
        into[has] = values
        return into

    covariances = some.covariances
    if covariances is not None and len(covariances) == len(has):
        covariances = spread(covariances)
    return Statistics(spread(some.counts), spread(some.means), covariances)


def _of(total: Statistics, has: IntArray) -> Statistics:
    """Return the statistics of some components."""
    covariances = total.covariances
    if covariances is not None and len(covariances) == len(total.counts):
        covariances = covariances[has]
    return Statistics(total.counts[has], total.means[has], covariances)


def with_components(all_of_them: Gaussians, has: IntArray, own: Gaussians) -> Gaussians:
    """Return components of which a client has some in a form of its own.

    Examples
    --------
    >>> shared, own = Gaussians(np.zeros((2, 1))), Gaussians(np.ones((1, 1)))
    >>> with_components(shared, np.array([1]), own).means.ravel()
    array([0., 1.])
    """
    means, covariances = all_of_them.means.copy(), own.covariances
    means[has] = own.means
    if covariances is not None and own.covariance_type != "tied":
        assert all_of_them.covariances is not None
        covariances = all_of_them.covariances.copy()
        covariances[has] = own.covariances
    return Gaussians(means, covariances, own.covariance_type)

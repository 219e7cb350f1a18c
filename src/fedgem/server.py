"""The server's side: Algorithm 1 of the paper as a state machine.

A state says which requests go out next and how it advances on the replies; it holds everything
that a crashed server needs to go on. No client's rows come near it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedgem.gaussian.covariances import (
    CovarianceType,
    Gaussians,
    matrices,
    of_components,
    per_component,
)
from fedgem.gaussian.mstep import Model, m_step
from fedgem.gaussian.statistics import Statistics, products
from fedgem.messages import Profile, TrainReply, TrainRequest
from fedgem.superclusters import MergeTree, heuristic_radii, merge_tree, update
from fedgem.typing import Array, IntArray
from fedgem.uncertainty import squared_radii


@dataclass(frozen=True)
class Settings:
    """What the server needs to know about a training.

    Attributes
    ----------
    max_iter : int
        The number T of rounds in which the server updates the components.
    n_steps : int
        The number S of local EM steps in a round.
    tol : float
        Training ends early when no mean moves farther in a round than this share of the spread
        of all means, in units of the components' pooled covariance.
    cannot_link : bool
        Whether components of one client must stay apart.
    covariance_type : {"identity", "spherical", "diag", "tied", "full"}
        The form of the components' covariances.
    learn_weights : bool
        Whether the clients' weights are learned.
    """

    max_iter: int = 10
    n_steps: int = 1
    tol: float = 0.0
    cannot_link: bool = False
    covariance_type: CovarianceType = "identity"
    learn_weights: bool = False


@dataclass(frozen=True)
class Round:
    """What happened in one round; a row of `history_`.

    Attributes
    ----------
    round : int
        Its number, from 0.
    objective : float
        The clients' mean objective per row at the start of the round, weighted by rows: the
        log-likelihood, and the prior terms of `fedgem.gaussian.mstep` where something is learned.
    n_clusters : int
        The number of super-clusters of the uncertainty sets.
    objectives, bytes_up, bytes_down : dict of str to number
        By client: its own objective, the bytes it sent and the bytes it was sent.
    seconds : float
        How long the round took.
    """

    round: int
    objective: float
    n_clusters: int
    objectives: dict[str, float]
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]
    seconds: float


@dataclass(frozen=True)
class Member:
    """What the server keeps of a client: its latest reply and the means that answer it.

    Attributes
    ----------
    profile : Profile
        What it said once.
    statistics : Statistics
        Of its latest E-step.
    squared_radii : array of shape (K_g,)
        The squared radii of its uncertainty sets.
    means : array of shape (K_g, d)
        The means chosen in answer.
    shapes : array, optional
        The covariances of that E-step, which the radii are measured in.
    """

    profile: Profile
    statistics: Statistics
    squared_radii: Array
    means: Array
    shapes: Array | None = None

    def components(self, settings: Settings) -> tuple[Gaussians, Array]:
        """Return the components at the chosen means, and their weights."""
        model = Model(settings.covariance_type, settings.learn_weights, self.profile.prior)
        return m_step(self.statistics, model, self.profile.weights, self.means)


@dataclass(frozen=True)
class Training:
    """Algorithm 1: collaborative training, up to the replies that the final aggregation takes.

    Attributes
    ----------
    names : tuple of str
        The clients, in order.
    settings : Settings
        How to train.
    round : int
        The round that comes next.
    members : dict of str to Member
        The clients that have answered so far. One that misses a round keeps its components.
    last : bool
        Whether the coming round is the last, whose maximisers are aggregated for good.
    finished : bool
        Whether no round is left.
    history : tuple of Round
        What happened so far.
    """

    names: tuple[str, ...]
    settings: Settings
    round: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    last: bool = False
    finished: bool = False
    history: tuple[Round, ...] = ()

    def requests(self) -> dict[str, TrainRequest]:
        """Return the next request to each client; none when training is over."""
        if self.finished:
            return {}
        return {name: self._request(self.members.get(name)) for name in self.names}

    def _request(self, member: Member | None) -> TrainRequest:
        if member is None:
            return TrainRequest(self.round, self.settings.n_steps)
        components, weights = member.components(self.settings)
        return TrainRequest(
            self.round,
            self.settings.n_steps,
            components.means,
            components.covariances,
            weights if self.settings.learn_weights else None,
        )

    def advance(self, replies: Mapping[str, TrainReply], seconds: float = 0.0) -> Training:
        """Take the replies of a round, from any subset of the clients, and update."""
        requests = self.requests()
        members = dict(self.members)
        for name, reply in replies.items():
            members[name] = _answered(
                requests[name], reply, self.members.get(name), self.settings.covariance_type
            )
        members = {name: members[name] for name in self.names if name in members}
        labels = np.zeros(0, np.intp)
        converged = False
        if members:
            before = members
            members, labels = _update(members, self.settings)
            converged = len(replies) == len(self.names) and _still(
                self.members, members, self.settings
            )
            members = before if self.last else members
        return replace(
            self,
            round=self.round + 1,
            members=members,
            last=converged or self.round + 1 >= self.settings.max_iter,
            finished=self.last,
            history=(*self.history, self._row(requests, replies, members, labels, seconds)),
        )

    def _row(
        self,
        requests: Mapping[str, TrainRequest],
        replies: Mapping[str, TrainReply],
        members: Mapping[str, Member],
        labels: IntArray,
        seconds: float,
    ) -> Round:
        objectives = {name: reply.objective for name, reply in replies.items()}
        sizes = [members[name].profile.n_rows for name in objectives]
        return Round(
            round=self.round,
            objective=float(np.average(list(objectives.values()), weights=sizes))
            if objectives
            else math.nan,
            n_clusters=int(labels.max(initial=-1)) + 1,
            objectives=objectives,
            bytes_up={name: reply.n_bytes for name, reply in replies.items()},
            bytes_down={name: requests[name].n_bytes for name in replies},
            seconds=seconds,
        )


def _answered(
    request: TrainRequest, reply: TrainReply, member: Member | None, covariance_type: CovarianceType
) -> Member:
    """Return what the server keeps of a client after its reply."""
    profile = reply.profile or (member.profile if member else None)
    if profile is None:
        raise ValueError("A client's first reply must carry its profile.")
    radii, shapes, means = reply.squared_radii, reply.shapes, reply.statistics.means
    if radii is None:
        if request.means is None:
            raise ValueError("A client that chose its own start must send its radii.")
        shapes = request.covariances
        radii = squared_radii(means, Gaussians(request.means, shapes, covariance_type))
    return Member(profile, reply.statistics, radii, means, shapes)


def _update(
    members: Mapping[str, Member], settings: Settings
) -> tuple[dict[str, Member], IntArray]:
    """Run Algorithm 2 over all components and hand each client its new means."""
    sizes = [len(member.squared_radii) for member in members.values()]
    means, labels = update(
        np.concatenate([member.statistics.means for member in members.values()]),
        np.concatenate([member.squared_radii for member in members.values()]),
        np.repeat(np.arange(len(members)), sizes),
        _shapes(members, settings),
        cannot_link=settings.cannot_link,
    )
    parts = np.split(means, np.cumsum(sizes)[:-1])
    updated = {
        name: replace(member, means=part)
        for (name, member), part in zip(members.items(), parts, strict=True)
    }
    return updated, labels


def _shapes(members: Mapping[str, Member], settings: Settings) -> Array | None:
    """Return what the radii of all components are measured in."""
    return _side_by_side(
        [
            Gaussians(member.means, member.shapes, settings.covariance_type)
            for member in members.values()
        ]
    )


def _side_by_side(components: Sequence[Gaussians]) -> Array | None:
    """Return the covariances of all clients' components; None for identities."""
    covariances = [per_component(some) for some in components]
    known = [some for some in covariances if some is not None]
    return np.concatenate(known) if known else None


def _still(before: Mapping[str, Member], after: Mapping[str, Member], settings: Settings) -> bool:
    """Tell whether no mean has moved farther than a share `tol` of the spread of all."""
    if len(before) < len(after):
        return False
    means = np.concatenate([member.means for member in after.values()])
    steps = means - np.concatenate([before[name].means for name in after])
    shapes = _shapes(after, settings)
    if shapes is not None:
        counts = np.concatenate([member.statistics.counts for member in after.values()])
        means, steps = _whitened(means, shapes, counts), _whitened(steps, shapes, counts)
    spread = np.square(means - means.mean(axis=0)).sum(axis=1).mean()
    return bool(np.square(steps).sum(axis=1).max() <= settings.tol**2 * spread)


def _whitened(points: Array, covariances: Array | None, counts: Array) -> Array:
    """Return points in units of the components' pooled covariance."""
    if covariances is None:
        return points
    pooled = np.tensordot(counts / counts.sum(), covariances, 1)
    if pooled.ndim < 2:
        return np.asarray(points / np.sqrt(pooled))
    return np.linalg.solve(np.linalg.cholesky(pooled), points.T).T


@dataclass(frozen=True)
class Components:
    """The components of all clients side by side, as the final aggregation takes them.

    Attributes
    ----------
    names : tuple of str
        The clients that have any.
    owners : array of shape (C,)
        The client of each component, an index into `names`.
    means : array of shape (C, d)
        Their means.
    weights : array of shape (C,)
        Their weights at their clients.
    counts : array of shape (C,)
        How many rows they answer for.
    n_rows : array of shape (G,)
        The clients' numbers of rows.
    covariances : array of shape (C, d, d), (C, d) or (C,), optional
        Their covariances; none for identities.
    """

    names: tuple[str, ...]
    owners: IntArray
    means: Array
    weights: Array
    counts: Array
    n_rows: IntArray
    covariances: Array | None = None

    @classmethod
    def of(cls, training: Training) -> Components:
        """Collect what the clients reported last."""
        members = training.members.values()
        components, weights = zip(
            *(member.components(training.settings) for member in members), strict=True
        )
        return cls(
            names=tuple(training.members),
            owners=np.repeat(np.arange(len(members)), [len(some) for some in weights]),
            means=np.concatenate([some.means for some in components]),
            weights=np.concatenate(weights),
            counts=np.concatenate([member.statistics.counts for member in members]),
            n_rows=np.array([member.profile.n_rows for member in members]),
            covariances=_side_by_side(components),
        )

    def merge_tree(self, squared_radii: Array | None, *, cannot_link: bool) -> MergeTree:
        """Return the merge tree, its costs in units of the given radii or of the heuristic.

        The heuristic is computed where the components' pooled covariance is the identity.
        """
        means = self.means
        if squared_radii is None:
            means = _whitened(means, self.covariances, self.counts)
            squared_radii = heuristic_radii(means, self.weights, self.owners, self.n_rows)
        return merge_tree(means, squared_radii, self.owners, cannot_link=cannot_link)


@dataclass(frozen=True)
class Clusters:
    """The clusters that the clients share.

    Attributes
    ----------
    means : array of shape (K, d)
        Their means.
    weights : array of shape (G, K)
        Each client's share of each cluster, 0 where absent.
    of_components : array of shape (C,)
        The cluster of each component.
    covariances : array of shape (K, d, d), optional
        Their covariances; none for identities.
    """

    means: Array
    weights: Array
    of_components: IntArray
    covariances: Array | None = None


def aggregate(components: Components, labels: IntArray) -> Clusters:
    """Run the final aggregation (Algorithm 3) for given super-clusters.

    A cluster's mean is the mean of its components' means, its covariance that of their rows
    about it. Clusters are numbered by the rows that they answer for, the largest first.
    """
    n_clusters = labels.max() + 1
    weights = np.zeros((len(components.names), n_clusters))
    np.add.at(weights, (components.owners, labels), components.weights)
    rows = np.bincount(labels, weights=components.counts, minlength=n_clusters)
    order = np.argsort(-rows, kind="stable")
    of_components = np.argsort(order)[labels]
    sums = np.zeros((n_clusters, components.means.shape[1]))
    np.add.at(sums, of_components, components.means)
    sizes = np.bincount(of_components, minlength=n_clusters)
    means = sums / sizes[:, None]
    covariances = _pooled(components, means[of_components], of_components)
    return Clusters(means, weights[:, order], of_components, covariances)


def _pooled(components: Components, centres: Array, labels: IntArray) -> Array | None:
    """Pool the covariances of each cluster's components, taken about the cluster's mean."""
    if components.covariances is None:
        return None
    own = components.covariances
    own = own + products(components.means - centres, own.ndim)
    # Where no component of a cluster has any rows, all count the same.
    counts = np.maximum(components.counts, np.finfo(np.float64).tiny)
    pooled = np.zeros((labels.max() + 1, *own.shape[1:]))
    axes = (slice(None), *(None,) * (own.ndim - 1))
    np.add.at(pooled, labels, counts[axes] * own)
    pooled /= np.bincount(labels, weights=counts)[axes]
    return matrices(of_components(np.zeros((len(pooled), centres.shape[1])), pooled))

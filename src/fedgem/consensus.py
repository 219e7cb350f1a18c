"""From the clients' own mixtures to one that they share, and to its number of clusters.

The server's side, as a state machine of four phases:

fit      Every client fits its own mixture. The server merges the components of all clients
         greedily, by the log-likelihood that a merge costs, down to somewhat more components than
         any client has clusters. Where every one of these turns out to be a cluster, there may be
         more: then down to more of them, once again.
spread   EM over these shared components, each client free to use them all: components that
         clients saw cut in the wrong places become those of everybody's rows.
number   For each number of clusters, shared components that belong together are merged, and EM
         goes on with each client held to as many clusters as it has. K-hat maximises the BIC.
shape    With K-hat clusters, the BIC chooses between one Gaussian a cluster and several, and the
         ICL between ways to group several.

That clients are held to their number of clusters is what makes K-hat identifiable: with too few
clusters, clients that have two of what was merged lose one; with too many, clients that have what
was cut in two cannot keep both. See docs/model.md for the derivation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fedgem.gaussian.covariances import CovarianceType, matrices
from fedgem.gaussian.mixture import regularised
from fedgem.gaussian.statistics import Statistics, concatenated
from fedgem.grouping import groupings, n_told_apart
from fedgem.merging import merge_components
from fedgem.messages import FitReply, FitRequest, Message, ShareReply, ShareRequest
from fedgem.server import Round
from fedgem.shared import (
    SharedMixture,
    all_are_kept,
    all_likelihoods,
    bayesian_information,
    evidence,
    local_weights,
    merged,
    n_parameters,
    n_present,
    own_penalties,
    parts_for,
    pooled,
    undecided,
    updated,
)
from fedgem.superclusters import MergeTree
from fedgem.typing import Array, BoolArray, IntArray

# How many shared components there are at first, relative to the most clusters of a client.
SPREAD = (1.0, 1.5, 2.0)
WAYS: tuple[Literal["all", "row", "touch"], ...] = ("all", "row", "touch")
# How much of a common covariance they keep in the first rounds (see `fedgem.gaussian.mixture`).
RELEASE = np.linspace(0.5, 0.0, 12)
# A client's rows that start in components it did not find itself.
ELSEWHERE = 0.1
FREE_ROUNDS = 3  # in which clients may still use every cluster, when clusters were merged
AT_ONCE = 3  # numbers of clusters tried side by side
# Clusters are no Gaussians, and every further Gaussian describes them better. One is enough as
# long as it loses no more per row than a Gaussian loses on a uniform distribution, the plainest
# shape that is still one cluster: log(2 pi e / 12) / 2 = 0.18 nats (its negentropy).
ONE_SHAPE = 0.5 * np.log(2 * np.pi * np.e / 12)


@dataclass(frozen=True)
class ConsensusSettings:
    """What the server needs to know.

    Attributes
    ----------
    max_iter : int
        Rounds for each mixture; twice as many while components spread.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        The form of the covariances.
    floor : array of shape (d,)
        Variances that keep covariances positive definite.
    """

    max_iter: int
    covariance_type: CovarianceType
    floor: Array


@dataclass(frozen=True)
class Consensus:
    """The state of the server.

    Attributes
    ----------
    names : tuple of str
        The clients, in order.
    settings : ConsensusSettings
        How to train.
    guessed : bool
        Whether the clients' numbers of clusters are their own guesses.
    phase : str
        "fit", "spread", "number", "shape" or "done".
    round : int
        The round that comes next.
    own : dict of str to Statistics
        The components that clients fitted themselves.
    n_rows, n_local : arrays of shape (G,)
        The clients' numbers of rows, 0 while unknown, and of clusters.
    tree : MergeTree, optional
        The merges of all clients' components.
    mixtures : tuple of SharedMixture
        What is in training.
    spread : tuple of SharedMixture
        The spread-out mixtures that clusters are made of.
    best : dict of int to SharedMixture
        For each number of clusters tried, the best mixture with one Gaussian a cluster.
    result : SharedMixture, optional
        The choice.
    history : tuple of Round
        What happened so far.
    """

    names: tuple[str, ...]
    settings: ConsensusSettings
    n_rows: IntArray
    n_local: IntArray
    guessed: bool = False
    phase: str = "fit"
    round: int = 0
    own: dict[str, Statistics] = field(default_factory=dict)
    tree: MergeTree | None = None
    mixtures: tuple[SharedMixture, ...] = ()
    spread: tuple[SharedMixture, ...] = ()
    best: dict[int, SharedMixture] = field(default_factory=dict)
    result: SharedMixture | None = None
    history: tuple[Round, ...] = ()

    @property
    def fewest(self) -> int:
        """The fewest clusters there can be: no client has one twice.

        Large guesses are too large, and only what three clients in four find at least is a bound.
        """
        return int(np.quantile(self.n_local, 0.25) if self.guessed else self.n_local.max())

    @property
    def most(self) -> int:
        """The most clusters to try: of guesses, as many as the clients' counts tell apart."""
        widest = self.spread[-1]
        if not self.guessed:
            return len(widest.cluster_of)
        return max(n_told_apart(widest.local_counts, self.n_rows), self.fewest)

    def score(self, mixture: SharedMixture) -> float:
        """Return the BIC; the evidence while clients only guess how many clusters they have."""
        covariance_type = self.settings.covariance_type
        if self.guessed:
            return evidence(mixture, self.n_rows, covariance_type)
        return bayesian_information(mixture, self.n_rows, self.n_local, covariance_type)

    def requests(self) -> Mapping[str, Message]:
        """Return the next request to each client; none when all is done."""
        return self._requests

    @cached_property  # the engine asks for them, and `advance` counts their bytes
    def _requests(self) -> Mapping[str, Message]:
        if self.phase == "done":
            return {}
        if self.phase == "fit":
            return dict.fromkeys(self.names, FitRequest(self.round, self.settings.floor))
        per_mixture = [
            parts_for(
                mixture,
                self._weights(mixture),
                self.settings.covariance_type,
                self.settings.floor,
                self._tied(mixture),
            )
            for mixture in self.mixtures
        ]
        overlap = self.phase in ("spread", "shape") and self._is_last()
        return {
            name: ShareRequest(self.round, overlap, tuple(parts))
            for name, *parts in zip(self.names, *per_mixture, strict=True)
        }

    def advance(self, replies: Mapping[str, Any], seconds: float = 0.0) -> Consensus:
        """Take the replies of a round, from any subset of the clients."""
        requests = self.requests()
        after = self._fitted(replies) if self.phase == "fit" else self._shared(replies)
        return replace(
            after,
            round=self.round + 1,
            history=(*self.history, after._row(self.round, requests, replies, seconds)),
        )

    def _fitted(self, replies: Mapping[str, FitReply]) -> Consensus:
        """Merge the clients' own components and let them spread."""
        if not replies:
            return self
        own = {name: replies[name].statistics for name in self.names if name in replies}
        n_rows = np.array([replies[n].n_rows if n in own else 0 for n in self.names])
        found = {name: len(statistics.counts) for name, statistics in own.items()}
        most = max(found.values())
        n_local = np.array(
            [found.get(n, given or most) for n, given in zip(self.names, self.n_local, strict=True)]
        )
        components = side_by_side(own, self)
        some = _in_tree(components.counts)
        tree = merge_components(
            components.counts[some],
            components.statistics.means[some],
            components.shapes[some],
        )
        state = replace(self, own=own, n_rows=n_rows, n_local=n_local, tree=tree)
        sizes = {min(int(factor * n_local.max()), tree.n_components) for factor in SPREAD}
        return state._spread_to(sizes)

    def _spread_to(self, sizes: set[int]) -> Consensus:
        """Let all clients' own components, merged down to these numbers, spread."""
        assert self.tree is not None
        components = side_by_side(self.own, self)
        some = _in_tree(components.counts)
        mixtures = []
        for size in sorted(sizes):
            labels = np.zeros(len(some), np.intp)
            labels[some] = self.tree.labels(size)
            mixture = pooled(
                components.statistics,
                labels,
                components.local_counts,
                self.settings.covariance_type,
            )
            total = mixture.local_counts.sum(axis=1, keepdims=True)
            started = (1 - ELSEWHERE) * mixture.local_counts + ELSEWHERE * total / size
            mixtures.append(replace(mixture, local_counts=started))
        return replace(self, phase="spread", mixtures=tuple(mixtures))

    def _shared(self, replies: Mapping[str, ShareReply]) -> Consensus:
        """Advance the mixtures in training, and what they are trained for."""
        n_rows = self.n_rows.copy()
        for g, name in enumerate(self.names):
            if name in replies:
                n_rows[g] = replies[name].n_rows
        mixtures = tuple(
            updated(
                mixture,
                self._weights(mixture),
                [
                    (g, replies[name].statistics[m], float(replies[name].log_likelihoods[m]))
                    for g, name in enumerate(self.names)
                    if name in replies
                ],
                self.settings.covariance_type,
            )
            for m, mixture in enumerate(self.mixtures)
        )
        state = replace(self, mixtures=mixtures, n_rows=n_rows)
        if not self._is_last():
            return state
        if self.phase == "spread":
            return replace(state, spread=(*self.spread, *mixtures))._try_numbers()
        if self.phase == "number":
            return state._after_numbers()
        return state._finished(mixtures)

    def _weights(self, mixture: SharedMixture) -> Array:
        young = self.phase == "number" and mixture.age < FREE_ROUNDS
        free = self.phase == "spread" or young or self.guessed
        return local_weights(mixture, None if free else self.n_local)

    def _tied(self, mixture: SharedMixture) -> float:
        still = self.phase == "spread" and mixture.age < len(RELEASE)
        return float(RELEASE[mixture.age]) if still else 0.0

    @property
    def n_rounds(self) -> int:
        """How many rounds the mixtures in training get."""
        return self.settings.max_iter * (2 if self.phase == "spread" else 1)

    def _is_last(self) -> bool:
        """Tell whether this is the last round for the mixtures in training."""
        return self.mixtures[0].age + 1 >= self.n_rounds

    def _groupings(self, n_clusters: int) -> list[tuple[SharedMixture, IntArray]]:
        """Return the ways to make so many clusters of the spread-out mixtures, each once."""
        found: dict[tuple[int, ...], tuple[SharedMixture, IntArray]] = {}
        for m, mixture in enumerate(self.spread):
            assert mixture.statistics.overlap is not None
            for by in WAYS:
                ways = groupings(
                    mixture.local_counts,
                    mixture.statistics.overlap,
                    self.fewest,
                    by,
                )
                if n_clusters in ways:
                    found[m, *ways[n_clusters].tolist()] = mixture, ways[n_clusters]
        return list(found.values())

    def _try_numbers(self) -> Consensus:
        """Train mixtures with the next few numbers of clusters."""
        first = self.fewest + len(self.best)
        mixtures = [
            merged(mixture, clusters, self.settings.covariance_type)
            for n_clusters in range(first, min(first + AT_ONCE, self.most + 1))
            for mixture, clusters in self._groupings(n_clusters)
        ]
        if mixtures:
            return replace(self, phase="number", mixtures=tuple(mixtures))
        assert self.tree is not None
        most = max(len(mixture.cluster_of) for mixture in self.spread)
        if self.n_clusters == most < self.tree.n_components:
            wider = {int(factor * most) + 1 for factor in SPREAD[1:]}
            return self._spread_to({min(size, self.tree.n_components) for size in wider})
        return self._after_all_numbers()

    def _after_numbers(self) -> Consensus:
        best = dict(self.best)
        for mixture in self.mixtures:
            n_clusters = mixture.n_clusters
            if n_clusters not in best or self.score(mixture) > self.score(best[n_clusters]):
                best[n_clusters] = mixture
        state = replace(self, best=best)
        # On, as long as the best number is among the last that were tried.
        if state.n_clusters > max(best) - AT_ONCE:
            return state._try_numbers()
        return state._after_all_numbers()

    def _after_all_numbers(self) -> Consensus:
        """Go on with the best number, or, where clients guessed theirs, once more with better ones.

        Clients that may use every cluster show how many they have.
        """
        if not self.guessed:
            return self._try_shapes()
        n_local = n_present(self.best[self.n_clusters].cluster_counts)
        return replace(self, guessed=False, n_local=n_local, best={})._try_numbers()

    @property
    def n_clusters(self) -> int:
        """The number of clusters with the largest BIC so far."""
        return max(self.best, key=lambda n_clusters: self.score(self.best[n_clusters]))

    def _try_shapes(self) -> Consensus:
        """Train mixtures whose clusters keep the components that they were made of."""
        unknown = np.full(len(self.names), np.nan)
        mixtures = [
            replace(mixture, cluster_of=clusters, log_likelihoods=unknown, age=0)
            for mixture, clusters in self._groupings(self.n_clusters)
            if len(clusters) > self.n_clusters
        ]
        if not mixtures:
            return self._finished(())
        return replace(self, phase="shape", mixtures=tuple(mixtures))

    def _finished(self, mixtures: tuple[SharedMixture, ...]) -> Consensus:
        result = self.best[self.n_clusters]
        least = self.score(result) + ONE_SHAPE * self.n_rows.sum()
        better = [mixture for mixture in mixtures if self.score(mixture) > least]
        if better:  # among ways to group the same parts, those that leave the clearest clusters
            result = max(better, key=lambda mixture: self.score(mixture) - undecided(mixture))
        return replace(self, phase="done", mixtures=(), result=result)

    def _row(
        self,
        number: int,
        requests: Mapping[str, Message],
        replies: Mapping[str, Any],
        seconds: float,
    ) -> Round:
        """Describe a round by the mixture that is ahead."""
        ahead = self.mixtures[:1] if self.result is None else (self.result,)
        objectives = {}
        for g, name in enumerate(self.names):
            if name in replies and ahead and self.n_rows[g]:
                likelihood = (
                    replies[name].objective
                    if isinstance(replies[name], FitReply)
                    else float(replies[name].log_likelihoods.max()) / self.n_rows[g]
                )
                objectives[name] = likelihood
        rows = {name: int(self.n_rows[g]) for g, name in enumerate(self.names)}
        weights = [rows[name] for name in objectives]
        mean = (
            float(np.average(list(objectives.values()), weights=weights))
            if any(weights)
            else np.nan
        )
        return Round(
            round=number,
            objective=mean,
            n_clusters=ahead[0].n_clusters if ahead else 0,
            objectives=objectives,
            bytes_up={name: reply.n_bytes for name, reply in replies.items()},
            bytes_down={name: requests[name].n_bytes for name in replies},
            seconds=seconds,
        )


def _in_tree(counts: Array) -> BoolArray:
    """Tell which of the clients' own components answer for any rows worth merging."""
    return np.asarray(counts > 1e-6 * counts.mean())


@dataclass(frozen=True)
class OwnComponents:
    """The clients' own components side by side.

    Attributes
    ----------
    statistics : Statistics
        Theirs.
    owners : array of shape (C,)
        The client of each.
    shapes : array of shape (C, r, r)
        Their covariances, regularised by their clients' own.
    """

    statistics: Statistics
    owners: IntArray
    shapes: Array
    n_clients: int

    @property
    def counts(self) -> Array:
        """How many rows each answers for."""
        return self.statistics.counts

    @property
    def local_counts(self) -> Array:
        """The same, by client: an array of shape (G, C)."""
        return np.asarray(np.eye(self.n_clients)[:, self.owners] * self.counts)


def side_by_side(own: Mapping[str, Statistics], state: Consensus) -> OwnComponents:
    """Collect the clients' own components."""
    covariance_type, floor = state.settings.covariance_type, state.settings.floor
    shapes = [matrices(regularised(some, covariance_type, floor)) for some in own.values()]
    index = {name: g for g, name in enumerate(state.names)}
    return OwnComponents(
        concatenated(list(own.values())),
        np.concatenate([np.full(len(s.counts), index[name]) for name, s in own.items()]),
        np.concatenate(shapes),
        len(state.names),
    )


def number_probabilities(state: Consensus, n_resamples: int = 1000) -> dict[int, float]:
    """Return how often each number of clusters is chosen when the clients are resampled.

    Clients are drawn with replacement (a bootstrap over clients) and the BIC of the mixtures that
    were trained for each number of clusters is computed for those drawn; nothing is trained again.

    Parameters
    ----------
    state : Consensus
        A finished one.
    n_resamples : int
        How many times to draw.
    """
    numbers = sorted(state.best)
    n_clients = len(state.names)
    rng = np.random.default_rng(0)  # a Monte Carlo sum: no reason to vary with anything
    times = rng.multinomial(n_clients, np.full(n_clients, 1 / n_clients), size=n_resamples)
    rows = times @ state.n_rows
    scores = np.empty((n_resamples, len(numbers)))
    for k, number in enumerate(numbers):
        mixture = state.best[number]
        likelihoods = all_likelihoods(mixture, state.n_rows)
        n_shared = n_parameters(mixture, state.settings.covariance_type)
        own = own_penalties(mixture, state.n_rows, state.n_local)
        if not all_are_kept(mixture, state.n_local):
            scores[:, k] = -np.inf
            continue
        scores[:, k] = times @ (likelihoods - own) - 0.5 * n_shared * np.log(np.maximum(rows, 1))
    chosen = np.bincount(scores.argmax(axis=1), minlength=len(numbers)) / n_resamples
    return {int(k): float(p) for k, p in zip(numbers, chosen, strict=True)}


def interval(probabilities: Mapping[int, float], level: float = 0.9) -> tuple[int, int]:
    """Return the range that leaves out no more than (1 - level) / 2 on either side.

    Examples
    --------
    >>> interval({3: 0.02, 4: 0.9, 5: 0.08})
    (4, 5)
    """
    numbers = sorted(probabilities)
    below = np.cumsum([probabilities[k] for k in numbers])
    tail = (1 - level) / 2
    first = int(np.argmax(below > tail))
    last = int(np.argmax(below >= 1 - tail - 1e-12))
    return numbers[first], numbers[last]

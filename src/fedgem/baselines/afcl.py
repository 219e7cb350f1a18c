"""AFCL: asynchronous competitive learning of more seeds than there are clusters.

Y. Zhang, Y. Zhang, Y. Lu, M. Li, X. Chen and Y.-M. Cheung, "Asynchronous Federated Clustering with
Unknown Number of Clusters", AAAI 2025. This follows the program that its authors published
(Yunfan-Zhang/AFCL), whose functions it names. Where that is unclear or contradicts itself:

- The program has a client send as many starting seeds as there are to be in all, or all its rows
  where it has fewer. Here client g sends K_g, drawn by k-means++, and all of them are the start, as
  the authors of FedGEM set it up (N / 32 in the paper).
- The server divides an update by the weight of the client's participation, by which nobody
  multiplied it. What it recovers is then not the row, and its step almost undoes the weight. Here
  it recovers the row, and the weight only shortens the step.
- The first weights of the features are drawn at random. Here they are equal.
- The program stops early once a Davies-Bouldin index settles, which takes statistics that are used
  for nothing else. Here it takes all its rounds.

Rows are private in name only: the server recovers them exactly, and has to (`reconstruct_rows`).
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from fedgem.baselines.method import Federation, Method, method
from fedgem.client import Client, respond
from fedgem.engines.engine import Engine
from fedgem.gaussian.initialisation import start
from fedgem.messages import Message
from fedgem.typing import Array, IntArray

# The constants of the program; lengths are those of features that reach from 0 to 1.
RATE = 0.001  # how far a row pulls a seed, on average over the features
SHARPNESS = 7.0  # the larger, the more equal the weights of the features
COOPERATING = 1e-4  # squared distance from the winner within which seeds always move with it
SAME = 0.001  # seeds that differ by less in every feature are one cluster


@dataclass(frozen=True)
class ExtentRequest(Message):
    """Server to client: say between which values your features lie."""


@dataclass(frozen=True)
class ExtentReply(Message):
    """Client to server: the least and the largest value of each feature."""

    least: Array
    largest: Array


@dataclass(frozen=True)
class StartRequest(Message):
    """Server to client: choose seeds."""


@dataclass(frozen=True)
class StartReply(Message):
    """Client to server: K_g of its rows."""

    seeds: Array


@dataclass(frozen=True)
class UpdateRequest(Message):
    """Server to an active client: tell how your rows pull these seeds.

    Attributes
    ----------
    seeds : array of shape (K, d)
        All seeds.
    rates : array of shape (d,)
        The learning rate of each feature.
    """

    seeds: Array
    rates: Array


@dataclass(frozen=True)
class UpdateReply(Message):
    """Client to server: how each row pulls the seed that is nearest to it, by seeds.

    Attributes
    ----------
    nearest : array of shape (N_g,)
        The seed.
    updates : array of shape (N_g, d)
        Rate times the row's offset from it.
    """

    nearest: IntArray
    updates: Array


@respond.register
def _extent(request: ExtentRequest, client: Client, pool: Executor | None = None) -> ExtentReply:
    blocks = [(block.min(axis=0), block.max(axis=0)) for block in client.rows.blocks()]
    least, largest = (np.array(bounds) for bounds in zip(*blocks, strict=True))
    return ExtentReply(least.min(axis=0), largest.max(axis=0))


@respond.register
def _start(request: StartRequest, client: Client, pool: Executor | None = None) -> StartReply:
    components, _ = start(client.rows, client.weights, client.n_init, client.seeds)
    return StartReply(components.means)


@respond.register
def _update(request: UpdateRequest, client: Client, pool: Executor | None = None) -> UpdateReply:
    """Gather the updates of the client's rows (`AFCL_client`)."""
    blocks = list(client.rows.blocks())
    rows = np.concatenate(blocks).astype(np.float64)
    nearest = np.concatenate([cdist(block, request.seeds).argmin(axis=1) for block in blocks])
    order = np.argsort(nearest, kind="stable")
    rows, nearest = rows[order], nearest[order]
    return UpdateReply(nearest, request.rates * (rows - request.seeds[nearest]))


def reconstruct_rows(request: UpdateRequest, reply: UpdateReply) -> Array:
    """Return the rows of the client that sent a reply: one division and one sum.

    Parameters
    ----------
    request : UpdateRequest
        What the server asked.
    reply : UpdateReply
        What the client answered.

    Returns
    -------
    array of shape (N_g, d)
        All its rows, by their nearest seeds. A feature of rate 0 has one value everywhere, and
        takes it from the seeds.

    Examples
    --------
    >>> import numpy as np
    >>> from fedgem.rows import Rows
    >>> client = Client("a", Rows.from_array(np.array([[7.0], [3.0]])), np.ones(1), seed=0)
    >>> request = UpdateRequest(np.array([[4.0]]), np.array([0.001]))
    >>> reconstruct_rows(request, respond(request, client)).round(9)
    array([[7.],
           [3.]])
    """
    offsets = np.zeros_like(reply.updates)
    np.divide(reply.updates, request.rates, out=offsets, where=request.rates > 0)
    return np.asarray(offsets + request.seeds[reply.nearest])


@njit(nogil=True, cache=True)
def interact(rows, steps, wins, seeds):  # type: ignore[no-untyped-def]
    """Let the seeds compete for rows, one by one (`AFCL_server`); `wins` and `seeds` change.

    The winner is near the row and has not won often. Those no further from the winner than the
    row is cooperate: they all make a step towards the row.
    """
    n_seeds, n_features = seeds.shape
    winner = np.empty(n_features)
    for i in range(len(rows)):
        least, reach, c = np.inf, 0.0, 0
        for k in range(n_seeds):
            distance = 0.0
            for j in range(n_features):
                distance += (rows[i, j] - seeds[k, j]) ** 2
            if wins[k] * distance < least:
                least, reach, c = wins[k] * distance, distance, k
        wins[c] += 1
        reach = max(reach, COOPERATING)
        winner[:] = seeds[c]
        for k in range(n_seeds):
            distance = 0.0
            for j in range(n_features):
                distance += (seeds[k, j] - winner[j]) ** 2
            if distance <= reach:
                for j in range(n_features):
                    seeds[k, j] += steps[j] * (rows[i, j] - seeds[k, j])


def feature_rates(pulls: Array) -> Array:
    """Return the learning rate of each feature: the larger, the less the seeds were pulled in it.

    Parameters
    ----------
    pulls : array of shape (d,)
        The sum of the sizes of all updates. A feature without any has one value everywhere, and
        rate 0.

    Examples
    --------
    >>> import numpy as np
    >>> feature_rates(np.array([1.0, 2.0**7])).round(6)
    array([0.001333, 0.000667])
    """
    weights = np.zeros_like(pulls)
    np.power(pulls, -1 / SHARPNESS, out=weights, where=pulls > 0)
    return np.asarray(RATE * len(pulls) * weights / weights.sum())


def balance(n_used: Array) -> Array:
    """Return the weight of each client: the more often it was used, the less it moves the seeds.

    Examples
    --------
    >>> import numpy as np
    >>> balance(np.array([0.0, 2.0, 2.0])).round(3)
    array([1.   , 0.667, 0.667])
    """
    return np.asarray(1 / (1 + n_used / max(1.0, n_used.sum())))


def distinct(seeds: Array) -> Array:
    """Return one seed of each group of seeds that have come together.

    Examples
    --------
    >>> import numpy as np
    >>> distinct(np.array([[0.0], [0.5], [0.0009], [0.0018]]))
    array([[0. ],
           [0.5]])
    """
    _, group = connected_components(cdist(seeds, seeds, "chebyshev") < SAME, directed=False)
    return np.asarray(seeds[np.unique(group, return_index=True)[1]])


@method("AFCL")
class AFCL(Method):
    """Asynchronous federated cluster learning (Zhang et al., 2025).

    The server has more seeds than there are clusters. Each row pulls the seed that wins it, and
    the seeds near that one, until seeds of the same cluster lie in the same place. A client is
    active in some rounds only; what the server knows of clients that are seldom active it uses
    again. Where clusters do not lie clearly apart, all seeds can end up in one place.

    Parameters
    ----------
    n_local_components : int, or one for each client
        How many seeds each client adds to the start.
    max_iter : int
        The number of rounds.
    engine : engine, optional
        What carries the messages.
    random_state : int, RandomState or None
        Decides the start, and who is active when.

    Attributes
    ----------
    n_clusters_ : int
        The number of places with a seed that has rows.
    means_ : array of shape (n_clusters_, d)
        These seeds.
    n_iter_ : int
        The number of rounds.
    span_ : array of shape (d,)
        From the least to the largest value of each feature. Distances are measured in it.

    Examples
    --------
    >>> from fedgem.datasets import make_federated_blobs
    >>> clients = make_federated_blobs(n_clusters=4, min_distance=8, random_state=0).clients
    >>> AFCL(3, random_state=0).fit(clients).n_clusters_
    4
    """

    def __init__(
        self,
        n_local_components: object = 2,
        max_iter: int = 100,
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_local_components = n_local_components
        self.max_iter = max_iter
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        extents = federation.ask(ExtentRequest()).values()
        least = np.min([reply.least for reply in extents], axis=0)
        span = np.max([reply.largest for reply in extents], axis=0) - least
        self.span_ = np.where(span > 0, span, 1.0)
        scaled = {
            name: client.seeing(shift=least, scale=self.span_)
            for name, client in federation.clients.items()
        }
        seeds = self._learn(replace(federation, clients=scaled))
        return np.asarray(least + self.span_ * seeds)

    def _learn(self, federation: Federation) -> Array:
        """Return the seeds that have rows (`AFCL_main`)."""
        seeds = np.concatenate([reply.seeds for reply in federation.ask(StartRequest()).values()])
        rates = np.full(seeds.shape[1], RATE)
        rng = federation.rng
        names = list(federation.clients)
        activity = rng.random(len(names))
        n_used = np.zeros(len(names))
        latest: dict[str, tuple[UpdateRequest, UpdateReply]] = {}
        for _ in range(self.max_iter):
            request = UpdateRequest(seeds, rates)
            asked = [names[g] for g in np.flatnonzero(rng.random(len(names)) < activity)]
            replies = federation.ask(dict.fromkeys(asked, request)) if asked else {}
            latest |= {name: (request, reply) for name, reply in replies.items()}
            active = np.isin(names, list(replies))
            known = np.isin(names, list(latest))
            n_used += active
            again = known & ~active & (balance(n_used) > balance(n_used).mean())
            n_used += again
            weights = balance(n_used)
            seeds, wins, pulls = seeds.copy(), np.ones(len(seeds)), np.zeros_like(rates)
            for g in np.flatnonzero(active | again):
                steps = rates * weights[g]
                interact(reconstruct_rows(*latest[names[g]]), steps, wins, seeds)
                pulls += np.abs(latest[names[g]][1].updates).sum(axis=0)
            rates = feature_rates(pulls) if pulls.any() else rates
        seeds = distinct(seeds)
        self.n_iter_ = self.max_iter
        replies = federation.ask(UpdateRequest(seeds, rates))
        has_rows = np.unique(np.concatenate([reply.nearest for reply in replies.values()]))
        return np.asarray(seeds[has_rows])

    def _labels_of(self, block: Array, client: str | None) -> IntArray:
        """Return the cluster with the nearest seed, measured in the features' spans."""
        return np.asarray(cdist(block / self.span_, self.means_ / self.span_).argmin(axis=1))

"""FedKmeans: k-means in rounds (Garst and Reinders, 2024)."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgem.baselines.lloyd import k_means, lloyd_step, seeds
from fedgem.baselines.method import Federation, Method, method
from fedgem.client import Client, respond
from fedgem.engines.engine import Engine
from fedgem.errors import InputError
from fedgem.gaussian.statistics import Statistics
from fedgem.messages import Message
from fedgem.rows import Rows
from fedgem.typing import Array

FEWEST = 2  # the paper's p: a mean of fewer rows would be a row, and stays at the client


@dataclass(frozen=True)
class LloydRequest(Message):
    """Server to client: take a step of k-means.

    Attributes
    ----------
    n_clusters : int
        How many clusters to start with.
    means : array of shape (K, d), optional
        The global means. None asks the client to choose its own start.
    """

    n_clusters: int
    means: Array | None = None


@dataclass(frozen=True)
class LloydReply(Message):
    """Client to server: its clusters of at least `FEWEST` rows.

    Attributes
    ----------
    statistics : Statistics
        How many rows each has, and their mean.
    """

    statistics: Statistics


@respond.register
def _step(request: LloydRequest, client: Client, pool: Executor | None = None) -> LloydReply:
    """Take the step."""
    means = request.means
    if means is None:
        means = seeds(client.rows, request.n_clusters, np.random.default_rng(client.seeds))
    statistics, _ = lloyd_step(client.rows, means)
    kept = statistics.counts >= FEWEST
    return LloydReply(Statistics(statistics.counts[kept], statistics.means[kept]))


@method("FedKmeans")
class FedKmeans(Method):
    """FedKmeans: clients refine the global means, the server clusters what they send.

    S. Garst and M. Reinders, "Federated K-means clustering", 2024, arXiv:2310.01195. Each client
    starts with k-means++. Then, in each round, the server runs k-means on all clients' means,
    weighted by their numbers of rows, and each client takes a step of k-means from the result;
    clusters that are empty there, or have a single row, are not sent.

    Of the paper only the abstract, the server's objective and p = 2 were at hand; the rest is from
    the authors' program. There a client takes one step of k-means in a round unless told otherwise.
    In its first version clients send their k-means++ seeds, which are rows; in the later one, and
    here, the means after a step from them. The server's k-means starts anew in each round, here as
    the best of several runs.

    Parameters
    ----------
    n_clusters : int
        How many clusters to look for. There are fewer where the clients send fewer means.
    max_iter : int
        The number of rounds.
    engine : engine, optional
        What carries the messages; all in this process by default.
    random_state : int or RandomState, optional
        Decides every random choice.

    Examples
    --------
    >>> clients = {"a": [[0.0], [1.0], [8.0], [9.0]], "b": [[8.0], [9.0], [30.0], [31.0]]}
    >>> np.sort(FedKmeans(3, random_state=0).fit(clients).means_.ravel())
    array([ 0.5,  8.5, 30.5])
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        max_iter: int = 20,
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        rng = federation.rng
        means = self._aggregated(federation.ask(LloydRequest(self.n_clusters)), rng)
        for _ in range(self.max_iter):
            replies = federation.ask(LloydRequest(self.n_clusters, means))
            means = self._aggregated(replies, rng)
        self.n_iter_ = self.max_iter
        return means

    def _aggregated(self, replies: dict[str, Any], rng: np.random.Generator) -> Array:
        """Run the server's k-means: the sum of S_j min_i |C_j - C_i|^2 is to be least."""
        sent = np.concatenate([reply.statistics.means for reply in replies.values()])
        counts = np.concatenate([reply.statistics.counts for reply in replies.values()])
        if not len(sent):
            raise InputError(
                "All clients: found no cluster of more than 1 sample, expected at least one."
            )
        return k_means(Rows.from_array(sent), self.n_clusters, rng, counts)

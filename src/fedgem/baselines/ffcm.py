"""FFCM: fuzzy c-means in rounds (Stallmann and Wilbik, 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from fedgem.baselines.fuzzy import fuzzy_step
from fedgem.baselines.lloyd import k_means, lloyd
from fedgem.baselines.method import Federation, Method, method
from fedgem.checks import require
from fedgem.client import Client, respond
from fedgem.engines.engine import Engine
from fedgem.gaussian.statistics import Statistics
from fedgem.messages import Message, MomentsRequest
from fedgem.rows import Rows
from fedgem.typing import Array

M = 2.0  # the fuzziness m
# Of the objective, which hardly falls near coincident centres: a client is not to stop there.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class FuzzyRequest(Message):
    """Server to client: run fuzzy c-means from these centres.

    Attributes
    ----------
    means : array of shape (K, d)
        The global centres.
    n_steps : int
        The number of steps, at most.
    """

    means: Array
    n_steps: int


@dataclass(frozen=True)
class FuzzyReply(Message):
    """Client to server: its centres.

    Attributes
    ----------
    statistics : Statistics
        The sum of the memberships in each cluster, and its centre.
    """

    statistics: Statistics


@respond.register
def _fuzzy(request: FuzzyRequest, client: Client, pool: Executor | None = None) -> FuzzyReply:
    """Run fuzzy c-means until its objective falls no more."""
    means, last = request.means, np.inf
    for _ in range(request.n_steps):
        supports, centres, objective = fuzzy_step(client.rows, means, M)
        if objective >= last * (1 - TOLERANCE):
            break
        means, last = centres.means, objective
    return FuzzyReply(Statistics(supports, centres.means))


def weighted_mean(replies: Sequence[Statistics], means: Array) -> Array:
    """Return the clients' centres averaged by their supports; a centre with none stays.

    Examples
    --------
    >>> a = Statistics(np.array([1.0]), np.array([[0.0]]))
    >>> b = Statistics(np.array([3.0]), np.array([[4.0]]))
    >>> weighted_mean([a, b], np.array([[9.0]]))
    array([[3.]])
    """
    total = reduce(add, replies)
    return np.where(total.counts[:, None] > 0, total.means, means)


class FFCM(Method):
    """FFCM: clients run fuzzy c-means from the global centres, the server averages theirs.

    M. Stallmann and A. Wilbik, "Towards federated clustering: a federated fuzzy c-means algorithm
    (FFCM)", 2022, arXiv:2201.07316. In each round every client runs fuzzy c-means with m = 2 on its
    rows from the global centres. The server takes the mean of the clients' centres, weighted by
    their supports (avg1), or runs k-means over all of them (avg2), from the last global centres but
    for the first round, which starts with k-means++.

    Taken from the authors' program, because the paper's text was not at hand: a client goes on
    until it has converged, its support is the sum of u and not of u^m, and k-means has no weights.
    The program starts from whole numbers drawn between -10 and 10, which suits only its own data;
    here each centre is drawn evenly from a box with the mean and the variances of all rows, for
    which the clients send theirs. The figures of FedGEM's paper fit a single local step.

    Parameters
    ----------
    n_clusters : int
        How many clusters to look for.
    average : {1, 2}
        Which average the server takes.
    n_local_steps : int
        How many steps a client takes in a round, unless it has converged before.
    max_iter : int
        The number of rounds.
    engine : engine, optional
        What carries the messages; all in this process by default.
    random_state : int or RandomState, optional
        Decides every random choice.

    Examples
    --------
    >>> clients = {"a": [[0.0], [1.0], [8.0], [9.0]], "b": [[8.0], [9.0], [0.0], [1.0]]}
    >>> np.sort(FFCM(n_clusters=2, random_state=0).fit(clients).means_.round(1).ravel())
    array([0.5, 8.5])
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        average: int = 1,
        n_local_steps: int = 1000,
        max_iter: int = 20,
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_clusters = n_clusters
        self.average = average
        self.n_local_steps = n_local_steps
        self.max_iter = max_iter
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        require("average", self.average, "1 or 2", self.average in (1, 2))
        rng = federation.rng
        moments = reduce(add, (r.statistics for r in federation.ask(MomentsRequest()).values()))
        half_widths = np.sqrt(3 * moments.covariances)
        draws = rng.uniform(-1, 1, (self.n_clusters, self.n_features_in_))
        means = moments.means + half_widths * draws
        for t in range(self.max_iter):
            asked = FuzzyRequest(means, self.n_local_steps)
            replies = [reply.statistics for reply in federation.ask(asked).values()]
            sent = Rows.from_array(np.concatenate([reply.means for reply in replies]))
            if self.average == 1:
                means = weighted_mean(replies, means)
            elif t == 0:
                means = k_means(sent, self.n_clusters, rng)
            else:
                means = lloyd(sent, means)[0].means
        self.n_iter_ = self.max_iter
        return np.asarray(means)


@method("FFCM-avg1")
def ffcm_avg1() -> FFCM:
    """Return FFCM with the weighted mean."""
    return FFCM()


@method("FFCM-avg2")
def ffcm_avg2() -> FFCM:
    """Return FFCM with k-means at the server."""
    return FFCM(average=2)

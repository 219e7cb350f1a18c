r"""Federated k-means by dual decomposition.

Yfantis, Wagner and Ruskowski (2025), *Federated K-means clustering via dual decomposition-based
distributed optimization*: each client g has a copy :math:`m_g` of the K centres, consensus
constraints make the copies equal, and Lagrange multipliers take their place,

.. math::

    \max_{\mu} \; \sum_g \min_{m_g} \Big[ \sum_n \min_k \|x_{gn} - m_{gk}\|^2
    + \sum_k \mu_{gk}' m_{gk} \Big] \quad \text{with} \quad \sum_g \mu_{gk} = 0 .

In every round the clients solve their own problems, and the server moves the multipliers along the
subgradient, which is how far the copies are from their mean. Copies that agree are a solution; as
long as they do not, centres that all clients share come from a heuristic, and the best of them is
the result.

What was checked: the abstract alone; neither the text nor a program could be found. It names
mixed-integer programs, consensus constraints, and three ways to move the multipliers: the
subgradient method, the bundle trust method and quasi-Newton dual ascent. What was chosen:

- The subgradient method, with steps that fall as :math:`1 / \sqrt{t}`. The other two keep
  models of the dual function in all G K d multipliers. With rows assigned, its curvature is
  1 / (2 n) in the multipliers of a cluster with n rows at a client; the first step is a tenth of
  2 n, for the mean n. Larger ones lowered the dual function on clients of unlike clusters.
- The clients' mixed-integer programs are minimised by turns: rows go to the nearest copy, and
  :math:`m_{gk}` to the mean of its rows less :math:`\mu_{gk} / (2 n_{gk})`. That stops at a local
  minimum, so the sum of the Lagrangians is no certain lower bound, which the paper's is.
- Clients start from the centres that all share, which also keeps the copies in one order. A copy
  that no row chooses stays there: its minimum has no bound, unless centres are kept inside a box,
  whose corners it would then jump between.
- The centres that all share are the means of all rows, as the clients assigned them last. The first
  come from `fedgem.baselines.start`.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from fedgem.baselines.lloyd import lloyd_step
from fedgem.baselines.method import Federation, Method, method
from fedgem.baselines.start import federated_start
from fedgem.client import Client, respond
from fedgem.engines.engine import Engine
from fedgem.gaussian.statistics import Statistics
from fedgem.messages import Message
from fedgem.typing import Array

FIRST_STEP = 0.1  # of one over the curvature
LOCAL_STEPS = 20


@dataclass(frozen=True)
class DualRequest(Message):
    """Server to client: minimise your part of the Lagrangian.

    Attributes
    ----------
    centres : array of shape (K, d)
        The centres that all clients share, where to start.
    multipliers : array of shape (K, d)
        What the client pays for its own.
    """

    centres: Array
    multipliers: Array


@dataclass(frozen=True)
class DualReply(Message):
    """Client to server: where its part is least.

    Attributes
    ----------
    n_rows : int
        How many rows the client has.
    objective : float
        The sum of their squared distances from the nearest shared centre.
    lagrangian : float
        The least value of its part that it found.
    statistics : Statistics
        The counts and means of the rows of its own centres.
    """

    n_rows: int
    objective: float
    lagrangian: float
    statistics: Statistics


def copies(statistics: Statistics, multipliers: Array) -> Array:
    """Return a client's centres that minimise its Lagrangian for the rows that they have.

    Examples
    --------
    >>> some = Statistics(np.array([2.0, 0.0]), np.array([[1.0], [5.0]]))
    >>> copies(some, np.array([[4.0], [4.0]])).ravel()
    array([0., 5.])
    """
    counts = statistics.counts[:, None]
    steps = np.divide(multipliers, 2 * counts, out=np.zeros_like(multipliers), where=counts > 0)
    return np.asarray(statistics.means - steps)


@respond.register
def _dual(request: DualRequest, client: Client, pool: Executor | None = None) -> DualReply:
    """Minimise the client's part of the Lagrangian by turns."""
    statistics, objective = lloyd_step(client.rows, request.centres)
    for _ in range(LOCAL_STEPS):
        before = copies(statistics, request.multipliers)
        statistics, distances = lloyd_step(client.rows, before)
        if np.array_equal(before, copies(statistics, request.multipliers)):
            break
    lagrangian = distances + float((request.multipliers * before).sum())
    return DualReply(client.rows.n_kept, objective, lagrangian, statistics)


@method("Dual decomposition")
class DualDecomposition(Method):
    """K-means of Yfantis et al. (2025), by the subgradient method.

    Parameters
    ----------
    n_clusters : int
        The number of clusters.
    max_iter : int
        The rounds.
    engine : engine, optional
        What carries the messages.
    random_state : int, RandomState or None
        Decides every random choice.

    Attributes
    ----------
    means_ : array of shape (K, d)
        The best centres that all clients shared.
    objectives_, dual_values_ : lists of float
        For each round, the sum of squared distances from the shared centres, and that of the
        Lagrangians, both per row of the clients that answered.

    Examples
    --------
    >>> clients = {"a": np.array([[0.0], [9.0]]), "b": np.array([[1.0], [8.0], [9.0]])}
    >>> model = DualDecomposition(n_clusters=2, random_state=0).fit(clients)
    >>> sorted(model.means_.ravel().round(3).tolist())
    [0.5, 8.667]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        max_iter: int = 20,
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        start, _ = federated_start(federation, self.n_clusters)
        centres = start.statistics.means
        per_copy = float(start.local_counts.mean())
        multipliers = {name: np.zeros_like(centres) for name in federation.clients}
        self.objectives_: list[float] = []
        self.dual_values_: list[float] = []
        tried = []
        for t in range(1, self.max_iter + 1):
            replies: Mapping[str, DualReply] = federation.ask(
                {name: DualRequest(centres, own) for name, own in multipliers.items()}
            )
            n_rows = sum(reply.n_rows for reply in replies.values())
            self.objectives_.append(sum(r.objective for r in replies.values()) / n_rows)
            self.dual_values_.append(sum(r.lagrangian for r in replies.values()) / n_rows)
            tried.append(centres)
            found = {name: copies(r.statistics, multipliers[name]) for name, r in replies.items()}
            mean = np.mean(list(found.values()), axis=0)
            step = FIRST_STEP * 2 * per_copy / np.sqrt(t)
            multipliers |= {n: multipliers[n] + step * (own - mean) for n, own in found.items()}
            centres = reduce(add, (reply.statistics for reply in replies.values())).means
        self.n_iter_ = self.max_iter
        return tried[int(np.argmin(self.objectives_))]

r"""Federated c-means, hard and fuzzy, that lose nothing against all rows in one place.

Bárcena, Marcelloni, Renda, Bechini and Ducange (2024), *Federated c-Means and Fuzzy c-Means
Clustering Algorithms for Horizontally and Vertically Partitioned Data*; here with the rows, not
the features, spread over the clients. In every round each client computes how far its rows belong
to each centre,

.. math::

    u_{nk} = \left[ \sum_j \left( \frac{\|x_n - v_k\|}{\|x_n - v_j\|}
    \right)^{2 / (\lambda - 1)} \right]^{-1},

and sends what the centres need: :math:`\sum_n u_{nk}^\lambda x_n` and :math:`\sum_n u_{nk}^\lambda`
(here as their ratio and the latter). The server adds them up over the clients that answered and
divides; a centre without rows stays. With fuzziness :math:`\lambda \to 1` rows belong to the
nearest centre alone, which is c-means as Lloyd has it.

What was checked: the authors' program, from which the steps above are. What is different:

- Their centres start uniform in the unit cube, into which they scale their data. Rows of other
  scales have no such cube, and hard clusters would start empty: ours start from
  `fedgem.baselines.start`.
- Their hard clients are silent on a cluster of which they have a single row, as its sum would be
  that row. That is not lossless; ours send it.
- In the program distances of 0 count as the machine's epsilon; here a row that is a centre belongs
  to it alone, whatever the scale of the rows.
- They stop once the centres move little, or after 10 rounds; their program, and ours, runs all
  its rounds, 20 as all methods here.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from fedgem.baselines.fuzzy import fuzzy_step
from fedgem.baselines.lloyd import lloyd_step
from fedgem.baselines.method import Federation, Method, method
from fedgem.baselines.start import federated_start
from fedgem.checks import is_number, require
from fedgem.client import Client, respond
from fedgem.engines.engine import Engine
from fedgem.gaussian.statistics import Statistics
from fedgem.messages import Message
from fedgem.rows import Rows
from fedgem.typing import Array


@dataclass(frozen=True)
class CentresRequest(Message):
    """Server to client: say what your rows make of these centres.

    Attributes
    ----------
    centres : array of shape (K, d)
        The centres.
    fuzziness : float
        The exponent of the memberships; 1 for hard ones.
    """

    centres: Array
    fuzziness: float


@dataclass(frozen=True)
class CentresReply(Message):
    """Client to server: its part of the next centres.

    Attributes
    ----------
    statistics : Statistics
        For each centre, the sum of the memberships to the power of the fuzziness, and the mean of
        the rows that are weighted by them.
    """

    statistics: Statistics


def c_step(rows: Rows, centres: Array, fuzziness: float) -> tuple[Statistics, float]:
    """Add up rows, each as far as it belongs to each centre.

    Parameters
    ----------
    rows : Rows
        The rows, read block by block.
    centres : array of shape (K, d)
        The centres.
    fuzziness : float
        1 for hard memberships, larger for fuzzy ones.

    Returns
    -------
    statistics : Statistics
        As in `CentresReply`; a centre without rows stays as it is.
    objective : float
        The sum of the squared distances that the memberships weight.

    Examples
    --------
    >>> rows = Rows.from_array(np.array([[0.0], [2.0], [9.0]]))
    >>> statistics, objective = c_step(rows, np.array([[0.0], [9.0]]), fuzziness=1.0)
    >>> statistics.means.ravel(), objective
    (array([1., 9.]), 4.0)
    """
    if fuzziness == 1:
        return lloyd_step(rows, centres)
    _, statistics, objective = fuzzy_step(rows, centres, fuzziness)
    return statistics, objective


@respond.register
def _centres(request: CentresRequest, client: Client, pool: Executor | None = None) -> CentresReply:
    """Say what the client's rows make of the centres."""
    return CentresReply(c_step(client.rows, request.centres, request.fuzziness)[0])


class FederatedCMeans(Method):
    """Hard and fuzzy c-means of Bárcena et al. (2024), for rows spread over clients.

    Parameters
    ----------
    n_clusters : int
        The number of clusters.
    fuzziness : float
        How fuzzy the clusters are, from 1, at which they are hard.
    max_iter : int
        The rounds.
    engine : engine, optional
        What carries the messages.
    random_state : int, RandomState or None
        Decides every random choice.

    Attributes
    ----------
    means_ : array of shape (K, d)
        The centres.

    Examples
    --------
    >>> clients = {"a": np.array([[0.0], [9.0]]), "b": np.array([[1.0], [8.0], [9.0]])}
    >>> model = FederatedCMeans(n_clusters=2, fuzziness=1.0, random_state=0).fit(clients)
    >>> sorted(model.means_.ravel().round(3).tolist())
    [0.5, 8.667]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        fuzziness: float = 2.0,
        max_iter: int = 20,
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.fuzziness = fuzziness
        self.max_iter = max_iter
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        given = self.fuzziness
        require("fuzziness", given, "a number from 1", is_number(given) and given >= 1)
        start, _ = federated_start(federation, self.n_clusters)
        centres = start.statistics.means
        for _ in range(self.max_iter):
            replies = federation.ask(CentresRequest(centres, float(self.fuzziness)))
            centres = reduce(add, (reply.statistics for reply in replies.values())).means
        self.n_iter_ = self.max_iter
        return centres


@method("Federated c-means")
def hard() -> FederatedCMeans:
    """Return c-means with hard clusters."""
    return FederatedCMeans(fuzziness=1.0)


@method("Federated fuzzy c-means")
def fuzzy() -> FederatedCMeans:
    """Return c-means with fuzzy clusters."""
    return FederatedCMeans()

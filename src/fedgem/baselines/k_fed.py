"""k-FED: k-means in one round (Dennis, Li and Smith, 2021)."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from fedgem.baselines.lloyd import k_means, lloyd, lloyd_step
from fedgem.baselines.method import Federation, Method, method
from fedgem.client import Client, respond
from fedgem.engines.engine import Engine
from fedgem.messages import Message
from fedgem.rows import Rows
from fedgem.typing import Array, IntArray


@dataclass(frozen=True)
class CentresRequest(Message):
    """Server to client: cluster your rows."""


@dataclass(frozen=True)
class CentresReply(Message):
    """Client to server: the means of its clusters.

    Attributes
    ----------
    means : array of shape (K_g, d)
        The means, fewer where the client has fewer distinct rows.
    """

    means: Array


def spectral_start(rows: Rows, n_clusters: int, rng: np.random.Generator) -> Array:
    """Return where a client's Lloyd's algorithm starts (Algorithm 1, all but the last step).

    The rows are projected on their top k right singular vectors and clustered there, with means
    nu_r. The start is the mean of each S_r, the rows three times nearer to nu_r than to any other.

    Parameters
    ----------
    rows : Rows
        The client's rows.
    n_clusters : int
        The number k of its clusters.
    rng : numpy Generator
        Draws the starts of k-means.

    Examples
    --------
    The row 4 is in no S_r:

    >>> rows = Rows.from_array(np.array([[1.0], [1.0], [4.0], [9.0], [9.0]]))
    >>> np.sort(spectral_start(rows, 2, np.random.default_rng(0)).ravel())
    array([1., 9.])
    """
    n_features = rows.shape[1]
    gram = np.zeros((n_features, n_features))
    for block in rows.blocks():
        gram += block.astype(np.float64).T @ block
    basis = np.linalg.eigh(gram)[1][:, -n_clusters:]
    nu = k_means(rows.projected(np.zeros(n_features), basis), n_clusters, rng)
    counts, sums = np.zeros(len(nu)), np.zeros((len(nu), n_features))
    for block in rows.blocks():
        distances = cdist(block @ basis, nu)
        for r in range(len(nu)):
            others = np.delete(distances, r, axis=1).min(axis=1, initial=np.inf)
            is_clean = distances[:, r] <= others / 3
            counts[r] += is_clean.sum()
            sums[r] += block[is_clean].sum(axis=0, dtype=np.float64)
    # Where S_r is empty, nu_r itself.
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], nu @ basis.T)


@respond.register
def _centres(request: CentresRequest, client: Client, pool: Executor | None = None) -> CentresReply:
    """Cluster the rows (Algorithm 1)."""
    rng = np.random.default_rng(client.seeds)
    clusters, _ = lloyd(client.rows, spectral_start(client.rows, len(client.weights), rng))
    return CentresReply(clusters.means[clusters.counts > 0])


def farthest_first(start: Array, points: Array, n_points: int) -> Array:
    """Add to some points, again and again, the one that is farthest from all of them.

    There are fewer than asked for where all points are there.

    Examples
    --------
    >>> farthest_first(np.array([[0.0]]), np.array([[1.0], [9.0], [4.0]]), 3).ravel()
    array([0., 9., 4.])
    """
    chosen = start
    while len(chosen) < n_points:
        distances = cdist(points, chosen).min(axis=1)
        if distances.max() == 0:
            break
        chosen = np.vstack([chosen, points[distances.argmax()]])
    return chosen


@method("k-FED")
class KFed(Method):
    """k-FED: each client clusters its rows, and the server clusters their means, once.

    D. K. Dennis, T. Li and V. Smith, "Heterogeneity for the win: one-shot federated clustering",
    ICML 2021, arXiv:2103.00697. Clients run the spectral k-means of Awasthi and Sheffet
    (Algorithm 1). The server starts with one client's means, adds the farthest of the others until
    there are K, and takes one step of Lloyd's algorithm over all of them (Algorithm 2). A client's
    row goes where its nearest mean at that client went.

    Where Algorithm 1 asks for a 10-approximation, this takes the best of several runs of k-means++
    and Lloyd's algorithm; the authors' program takes k-means++ seeds. The program takes the means
    of the S_r in the subspace, this of the rows themselves, as Awasthi and Sheffet do. The paper
    does not say what to do where an S_r is empty: this takes nu_r. The server's first client is
    drawn at random; the program takes the first, and runs Lloyd's algorithm until it has converged.

    Parameters
    ----------
    n_clusters : int
        How many clusters to look for. There are fewer where the clients send fewer means.
    n_local_components : int, sequence or dict of int
        How many clusters a client has, one number for all or one for each. The paper's theory wants
        at most the square root of `n_clusters`.
    engine : engine, optional
        What carries the messages; all in this process by default.
    random_state : int or RandomState, optional
        Decides every random choice.

    Examples
    --------
    >>> clients = {"a": [[0.0], [1.0], [8.0], [9.0]], "b": [[8.0], [9.0], [30.0], [31.0]]}
    >>> np.sort(KFed(3, random_state=0).fit(clients).means_.ravel())
    array([ 0.5,  8.5, 30.5])
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_local_components: Any = 2,
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_clusters = n_clusters
        self.n_local_components = n_local_components
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        replies = federation.ask(CentresRequest())
        self.client_means_ = {name: reply.means for name, reply in replies.items()}
        sent = np.concatenate(list(self.client_means_.values()))
        first = list(self.client_means_)[federation.rng.integers(len(replies))]
        # No client has more clusters than there are, but it may be told so.
        start = self.client_means_[first][: self.n_clusters]
        start = farthest_first(start, sent, self.n_clusters)
        self.cluster_of_ = {
            name: cdist(means, start).argmin(axis=1) for name, means in self.client_means_.items()
        }
        clusters, _ = lloyd_step(Rows.from_array(sent), start)
        return clusters.means

    def _labels_of(self, block: Array, client: str | None) -> IntArray:
        """Return the cluster of the nearest mean at the client; of all clusters if not known."""
        name = str(client)
        if client is None or name not in self.client_means_:
            return super()._labels_of(block, client)
        nearest = cdist(block, self.client_means_[name]).argmin(axis=1)
        return np.asarray(self.cluster_of_[name][nearest])

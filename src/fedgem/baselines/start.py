"""A start that the clients and the server find together: k-means of the clients' own k-means.

Each client runs k-means++ and Lloyd's algorithm on its rows, as if it had all the clusters; the
server runs them on the centres that it gets, each as heavy as it has rows.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import cdist

from fedgem.baselines.lloyd import k_means
from fedgem.baselines.method import Federation
from fedgem.client import Client, respond
from fedgem.gaussian.covariances import CovarianceType
from fedgem.gaussian.initialisation import SAMPLE
from fedgem.gaussian.mixture import statistics_of_labels
from fedgem.gaussian.statistics import Statistics
from fedgem.messages import Message
from fedgem.rows import Rows
from fedgem.shared import SharedMixture, pooled


@dataclass(frozen=True)
class StartRequest(Message):
    """Server to client: cluster your own rows.

    Attributes
    ----------
    n_clusters : int
        How many clusters to look for.
    full : bool
        Whether their covariances are asked for.
    """

    n_clusters: int
    full: bool


@dataclass(frozen=True)
class StartReply(Message):
    """Client to server: its own clusters.

    Attributes
    ----------
    statistics : Statistics
        Their counts and means, and their covariances where they were asked for.
    """

    statistics: Statistics


@respond.register
def _start(request: StartRequest, client: Client, pool: Executor | None = None) -> StartReply:
    """Cluster the client's own rows."""
    rng = np.random.default_rng(client.seeds)
    sample = client.rows.sample(SAMPLE, rng).astype(np.float64)
    centres = k_means(Rows.from_array(sample), request.n_clusters, rng)
    labels = cdist(sample, centres).argmin(axis=1)
    covariance_type: CovarianceType = "full" if request.full else "identity"
    statistics = statistics_of_labels(sample, labels, centres, covariance_type)
    counts = statistics.counts * (client.rows.n_kept / len(sample))
    return StartReply(replace(statistics, counts=counts))


def federated_start(
    federation: Federation, n_clusters: int, covariance_type: CovarianceType = "identity"
) -> tuple[SharedMixture, list[str]]:
    """Return clusters to start from, fewer than asked for where rows are few.

    Parameters
    ----------
    federation : Federation
        The clients.
    n_clusters : int
        How many clusters there are.
    covariance_type : {"full", "identity"}
        Whether the clusters have covariances.

    Returns
    -------
    clusters : SharedMixture
        Their statistics, and how many rows of each client they have.
    names : list of str
        The clients that answered.
    """
    replies = federation.ask(StartRequest(n_clusters, covariance_type == "full"))
    own = [reply.statistics for reply in replies.values()]
    counts = np.concatenate([s.counts for s in own])
    means = np.concatenate([s.means for s in own])
    covariances = [s.covariances for s in own if s.covariances is not None]
    all_of_them = Statistics(counts, means, np.concatenate(covariances) if covariances else None)
    owners = np.repeat(np.arange(len(own)), [len(s.counts) for s in own])
    centres = k_means(Rows.from_array(means), n_clusters, federation.rng, counts)
    _, labels = np.unique(cdist(means, centres).argmin(axis=1), return_inverse=True)
    local_counts = np.eye(len(own))[:, owners] * counts
    return pooled(all_of_them, labels, local_counts, covariance_type), list(replies)

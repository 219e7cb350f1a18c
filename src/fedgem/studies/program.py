"""The program published with the paper, errata and all, to compare its published figures with.

This is not the paper's algorithm, which is `FedGEM.paper`, and not for use: its uncertainty sets
are half as large as they may be, and their meeting points lie on the wrong side. Each choice of its
own is named where it is made; docs/errata.md explains them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances_argmin, silhouette_score

from fedgem.baselines import Entry, Federation, Method
from fedgem.client import N_FOLDS
from fedgem.datasets import FederatedSplit
from fedgem.disjoint_set import labels_of
from fedgem.engines.local import LocalEngine
from fedgem.gaussian.covariances import Gaussians
from fedgem.messages import TrainRequest
from fedgem.superclusters import heuristic_radii, join_unless_siblings_meet
from fedgem.typing import Array, IntArray
from fedgem.uncertainty import squared_radii

MAX_ITER = 10
STILL = 1e-3  # training ends when no mean moves farther


@dataclass(frozen=True)
class Trained:
    """All clients' components after training: their last maximisers, and the means before them."""

    maximisers: Array
    means: Array
    owners: IntArray
    weights: Array
    n_rows: IntArray


class PublishedProgram(Method):
    """FedGEM as the published program computes it.

    Parameters
    ----------
    n_local_components : int, sequence or dict
        The number of components of each client.
    upsilon : float or sequence of float
        The factor of the final radii; of several, cross-validation by silhouettes chooses.
    engine : engine, optional
        What carries the messages.
    random_state : int, RandomState or None
        Decides every random choice.

    Examples
    --------
    >>> rows = np.repeat([[0.0], [9.0]], 9, axis=0) + np.linspace(0, 1, 18)[:, None]
    >>> PublishedProgram(2, random_state=0).fit([rows, rows]).n_clusters_
    2
    """

    def __init__(
        self,
        n_local_components: object = 2,
        upsilon: float | Sequence[float] = 2.0,
        engine: LocalEngine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_local_components = n_local_components
        self.upsilon = upsilon
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        upsilons = np.atleast_1d(np.asarray(self.upsilon, dtype=float))
        self.upsilon_ = float(upsilons[0])
        if len(upsilons) > 1:
            self.upsilon_ = float(upsilons[np.argmax(_silhouettes(federation, upsilons))])
        trained = _train(federation)
        labels = _aggregate(trained, self.upsilon_)
        self.components_ = {
            name: labels[trained.owners == g] for g, name in enumerate(federation.clients)
        }
        return _means(trained.maximisers, labels)

    def _labels_of(self, block: Array, client: str | None) -> IntArray:
        """Return the client's own cluster with the nearest mean."""
        if client is None:
            return super()._labels_of(block, client)
        own = self.components_[str(client)]
        return np.asarray(own[pairwise_distances_argmin(block, self.means_[own])])


PROGRAM = Entry("FedGEM, published program", PublishedProgram)


def published_split(
    X: ArrayLike, y: ArrayLike, n_clients: int, most: int, train_share: float, seed: int
) -> FederatedSplit:
    """Spread rows over clients as the published program does.

    Each client draws 2 to `most` classes, and takes of each the next rows in the order of the file:
    as many as the class's share of all rows, times the rows of one client of G. The rows of the
    classes that few clients drew stay unused.
    """
    X, y = np.asarray(X), np.asarray(y)
    rng = np.random.default_rng(seed)
    shares = np.bincount(y) / len(y)
    n_train = int(train_share * len(y))
    per_client = np.array([n_train // n_clients, (len(y) - n_train) // n_clients])
    memberships = np.zeros((n_clients, len(shares)), np.bool_)
    rows = [np.flatnonzero(y == k) for k in range(len(shares))]
    split = FederatedSplit({}, {}, {}, {}, memberships)
    for g, n_classes in enumerate(rng.integers(2, most + 1, n_clients)):
        parts = []
        for k in rng.choice(len(shares), n_classes, replace=False):
            counts = (shares[k] * per_client).astype(int)
            train, test, rows[k] = np.split(rows[k], np.cumsum(counts))
            memberships[g, k] = True
            parts.append((train, test))
        train, test = (np.concatenate(part) for part in zip(*parts, strict=True))
        name = f"client-{g + 1:0{len(str(n_clients))}d}"
        split.train[name], split.train_labels[name] = X[train], y[train]
        split.test[name], split.test_labels[name] = X[test], y[test]
    return split


def _train(federation: Federation) -> Trained:
    """Run the collaborative training, and the last E-step."""
    replies = federation.ask(TrainRequest(0, n_steps=1))
    owners = np.repeat(
        np.arange(len(replies)), [len(reply.statistics.means) for reply in replies.values()]
    )
    radii = np.concatenate([reply.squared_radii for reply in replies.values()])
    maximisers = np.concatenate([reply.statistics.means for reply in replies.values()])
    means = maximisers
    for t in range(1, MAX_ITER + 2):
        previous, means = means, _update(maximisers, 0.5 * radii, owners)  # the first midpoint
        asked = {
            name: TrainRequest(t, n_steps=1, means=means[owners == g])
            for g, name in enumerate(federation.clients)
        }
        replies = federation.ask(asked)
        maximisers = np.concatenate([reply.statistics.means for reply in replies.values()])
        radii = squared_radii(maximisers, Gaussians(means))
        if t > 1 and np.linalg.norm(means - previous, axis=1).max() <= STILL:
            break
    clients = federation.clients.values()
    weights = np.concatenate([client.weights for client in clients])
    n_rows = np.array([client.rows.n_kept for client in clients])
    return Trained(maximisers, means, owners, weights, n_rows)


def _update(means: Array, squared: Array, owners: IntArray) -> Array:
    """Return the mean of each component's set T (Algorithm 2)."""
    radii = np.sqrt(squared)
    first, second = _overlapping(means, radii, owners)
    distances = np.linalg.norm(means[first] - means[second], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.maximum(0.5, 1 - radii[second] / distances)
        share = np.minimum(share, radii[first] / distances)
    share[distances == 0] = 0
    # Away from the other mean, where the paper's text needs a point that lies in both sets.
    meeting = means[first] + share[:, None] * (means[first] - means[second])
    # The point of a pair that joins two super-clusters counts twice.
    times = 1 + (join_unless_siblings_meet(first, second, owners, owners.max() + 1) == 2)
    sums, sizes = means.copy(), np.ones(len(means))
    for side in (first, second):
        np.add.at(sums, side, times[:, None] * meeting)
        np.add.at(sizes, side, times)
    return sums / sizes[:, None]


def _aggregate(trained: Trained, upsilon: float) -> IntArray:
    """Return each component's cluster (Algorithm 3).

    The smallest distance between siblings is that of the means before the last maximisers.
    """
    squared = upsilon * heuristic_radii(
        trained.means, trained.weights, trained.owners, trained.n_rows
    )
    first, second = _overlapping(trained.maximisers, np.sqrt(squared), trained.owners)
    outcome = join_unless_siblings_meet(first, second, trained.owners, len(trained.n_rows))
    return labels_of(len(trained.owners), first[outcome == 2], second[outcome == 2])


def _overlapping(means: Array, radii: Array, owners: IntArray) -> tuple[IntArray, IntArray]:
    """Return the overlapping pairs of different clients, in the order of the clients."""
    overlap = cdist(means, means) <= radii[:, None] + radii
    first, second = np.nonzero(np.triu(overlap & (owners[:, None] != owners), 1))
    return first, second


def _means(maximisers: Array, labels: IntArray) -> Array:
    """Return the mean of each cluster's components."""
    sums = np.zeros((labels.max() + 1, maximisers.shape[1]))
    np.add.at(sums, labels, maximisers)
    return sums / np.bincount(labels)[:, None]


def _silhouettes(federation: Federation, upsilons: Array) -> Array:
    """Return the silhouette of held-out rows at each upsilon.

    All three folds of three are held out in turn; the program does so with three of five.
    """
    scores = np.zeros(len(upsilons))
    for fold in range(N_FOLDS):
        clients = {name: client.seeing(fold=fold) for name, client in federation.clients.items()}
        trained = _train(Federation(clients, federation.engine, federation.seed))
        held_out = [np.concatenate(list(c.held_out.blocks())) for c in clients.values()]
        for u, upsilon in enumerate(upsilons):
            labels = _aggregate(trained, upsilon)
            means = _means(trained.maximisers, labels)
            for g, X in enumerate(held_out):
                found = pairwise_distances_argmin(X, means[labels[trained.owners == g]])
                if 1 < len(np.unique(found)) < len(X):  # otherwise the program ends in an error
                    scores[u] += silhouette_score(X, found)
    return scores

"""HDBSCAN and DBSCAN on all rows in one place: clusters are where rows lie densely.

They are told nothing, so what they have to be told follows from the rows alone. Both compare rows
in pairs; beyond `MOST_ROWS` they take that many, drawn at random, which bounds time and memory.
Rows that lie nowhere densely are noise, -1.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import HDBSCAN
from sklearn.neighbors import NearestNeighbors, radius_neighbors_graph

from fedgem.baselines.method import Federation, Method, method
from fedgem.engines.engine import Engine
from fedgem.typing import Array, IntArray

MOST_ROWS = 5_000
FEWEST = 5
NOISE = -1


class CentralDensity(Method):
    """Base of the two: a row is what the nearest row with a label is, unless that is too far."""

    def __init__(
        self,
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.engine = engine
        self.random_state = random_state

    @abstractmethod
    def _cluster(self, X: Array) -> tuple[Array, IntArray, float]:
        """Return rows and their labels, and how far a row may be from one to have its label."""

    def _find(self, federation: Federation) -> Array:
        X = federation.pooled
        if len(X) > MOST_ROWS:
            X = X[np.sort(federation.rng.choice(len(X), MOST_ROWS, replace=False))]
        rows, self.row_labels_, self.reach_ = self._cluster(X)
        self.neighbours_ = NearestNeighbors(n_neighbors=1).fit(rows)
        n_clusters = self.row_labels_.max(initial=NOISE) + 1
        means = [rows[self.row_labels_ == k].mean(axis=0) for k in range(n_clusters)]
        return np.array(means).reshape(n_clusters, X.shape[1])

    def _labels_of(self, block: Array, client: str | None) -> IntArray:
        """Return the label of the nearest row."""
        distances, nearest = self.neighbours_.kneighbors(block)
        return np.where(distances <= self.reach_, self.row_labels_[nearest], NOISE)[:, 0]


@method("HDBSCAN (central)", is_federated=False)
class CentralHDBSCAN(CentralDensity):
    """HDBSCAN (Campello, Moulavi and Sander, 2013), as scikit-learn runs it.

    A cluster has at least sqrt(N) rows, and not fewer than 5. How densely a row lies is measured
    by its 5 nearest, itself among them, as by scikit-learn's default. Other rows get the label of
    the nearest row that it saw, and are noise where that one is.

    Parameters
    ----------
    engine : ignored
    random_state : int, RandomState or None
        Draws the rows, where there are too many.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = CentralHDBSCAN().fit({"a": X, "b": X + 20})
    >>> model.n_clusters_, model.predict([[0, 0], [20, 20]]).tolist()
    (2, [0, 1])
    """

    def _cluster(self, X: Array) -> tuple[Array, IntArray, float]:
        least = max(FEWEST, math.isqrt(len(X)))
        found = HDBSCAN(least, min_samples=min(FEWEST, len(X)), copy=True).fit(X)
        return X, np.asarray(found.labels_), np.inf


@method("DBSCAN (central)", is_federated=False)
class CentralDBSCAN(CentralDensity):
    """DBSCAN (Ester et al., 1996).

    A core row is one with 2 d rows (Sander et al., 1998), itself among them, within a distance:
    that at the elbow of the sorted distances to the last of these rows. Core rows within that
    distance of each other are in one cluster, and so is any other row within it of one of them,
    the nearest.

    Parameters
    ----------
    engine : ignored
    random_state : int, RandomState or None
        Draws the rows, where there are too many.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = CentralDBSCAN().fit({"a": X, "b": X + 20})
    >>> model.n_clusters_, model.predict([[0, 0], [10, 10], [20, 20]]).tolist()
    (2, [0, -1, 1])
    """

    def _cluster(self, X: Array) -> tuple[Array, IntArray, float]:
        n_around = min(2 * X.shape[1], len(X))
        distances, _ = NearestNeighbors(n_neighbors=n_around).fit(X).kneighbors(X)
        reach = elbow(np.sort(distances[:, -1]))
        core = X[distances[:, -1] <= reach]
        _, labels = connected_components(radius_neighbors_graph(core, reach), directed=False)
        return core, labels, reach


def elbow(ascending: Array) -> float:
    """Return where a rising curve bends: the value furthest below the line through its ends.

    Examples
    --------
    >>> import numpy as np
    >>> elbow(np.array([1.0, 1.1, 1.2, 1.3, 5.0]))
    1.3
    """
    line = np.linspace(ascending[0], ascending[-1], len(ascending))
    return float(ascending[np.argmax(line - ascending)])

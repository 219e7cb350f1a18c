"""k-means of all rows in one place."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from fedgem.baselines.method import Federation, Method, method
from fedgem.engines.engine import Engine
from fedgem.typing import Array


@method("k-means (central)", is_federated=False)
class CentralKMeans(Method):
    """k-means, as scikit-learn fits it: the best of ten starts.

    Parameters
    ----------
    n_clusters : int
        The number of clusters.
    engine : ignored
    random_state : int, RandomState or None
        Decides the start.

    Examples
    --------
    >>> model = CentralKMeans(2, random_state=0).fit({"a": [[0.0], [1.0]], "b": [[8.0], [9.0]]})
    >>> sorted(model.means_.ravel().tolist())
    [0.5, 8.5]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        found = KMeans(self.n_clusters, n_init=10, random_state=federation.seed)
        with warnings.catch_warnings():  # that some rows are equal
            warnings.simplefilter("ignore", ConvergenceWarning)
            found.fit(federation.pooled)
        return np.unique(found.cluster_centers_, axis=0)

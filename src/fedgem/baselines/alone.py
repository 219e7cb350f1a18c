"""No federation: every client alone. Two clients never have a cluster in common."""

from __future__ import annotations

import numpy as np

from fedgem.baselines.central_kmeans import CentralKMeans
from fedgem.baselines.method import Federation, Method, method
from fedgem.checks import require
from fedgem.engines.engine import Engine
from fedgem.estimator import FedGEM
from fedgem.typing import Array, IntArray


class Alone(Method):
    """Every client has a model of its own.

    Parameters
    ----------
    model : {"k-means", "FedGEM"}
        Of which kind.
    n_local_components : int, or one for each client
        How many clusters a client has.
    engine : engine, optional
        What FedGEM runs on.
    random_state : int, RandomState or None
        Decides every random choice.

    Attributes
    ----------
    n_clusters_ : int
        The clusters of all clients together.
    models_ : dict of str to estimator
        The model of each client.
    first_ : dict of str to int
        The number of each client's first cluster.

    Examples
    --------
    >>> clients = {"a": [[0.0], [1.0], [8.0], [9.0]], "b": [[8.0], [9.0]]}
    >>> model = Alone(n_local_components={"a": 2, "b": 1}, random_state=0).fit(clients)
    >>> model.n_clusters_, model.predict([[8.0]], client="b")
    (3, array([2]))
    """

    def __init__(
        self,
        model: str = "k-means",
        n_local_components: object = 2,
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.model = model
        self.n_local_components = n_local_components
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        require("model", self.model, "k-means or FedGEM", self.model in ("k-means", "FedGEM"))
        make = FedGEM if self.model == "FedGEM" else CentralKMeans
        self.models_ = {
            name: make(len(client.weights), engine=self.engine, random_state=federation.seed).fit(
                np.concatenate(list(client.rows.blocks()))
            )
            for name, client in federation.clients.items()
        }
        numbers = [model.n_clusters_ for model in self.models_.values()]
        before = np.cumsum([0, *numbers[:-1]]).tolist()
        self.first_ = dict(zip(self.models_, before, strict=True))
        return np.concatenate([model.means_ for model in self.models_.values()])

    def _labels_of(self, block: Array, client: str | None) -> IntArray:
        """Return the cluster by the client's own model, or by the nearest mean of all clients."""
        if client is None:
            return super()._labels_of(block, client)
        return np.asarray(self.first_[str(client)] + self.models_[str(client)].predict(block))


@method("k-means (no federation)")
def kmeans_alone() -> Alone:
    """Return k-means at every client."""
    return Alone("k-means")


@method("FedGEM (no federation)")
def fedgem_alone() -> Alone:
    """Return FedGEM at every client."""
    return Alone("FedGEM")

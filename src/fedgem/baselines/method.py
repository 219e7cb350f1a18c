"""What the methods that FedGEM is compared with have in common, and the list of them all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils import check_random_state

from fedgem.base import FederatedClusterer, keep_features
from fedgem.checks import component_weights, is_whole, require
from fedgem.client import Client
from fedgem.engines.engine import Engine
from fedgem.engines.local import LocalEngine
from fedgem.inputs import collect
from fedgem.messages import Message
from fedgem.server import Round
from fedgem.typing import Array, IntArray


@dataclass(frozen=True)
class Exchange:
    """One request to each client, and their replies."""

    asked: Mapping[str, Message]
    round: int = 0
    replies: Mapping[str, Any] | None = None
    seconds: float = 0.0

    def requests(self) -> Mapping[str, Message]:
        """Return the requests; none once they are answered."""
        return self.asked if self.replies is None else {}

    def advance(self, replies: Mapping[str, Any], seconds: float = 0.0) -> Exchange:
        """Take the replies."""
        return replace(self, replies=replies, seconds=seconds)


@dataclass
class Federation:
    """The clients, as the server of a method sees them: it asks, and they answer.

    Attributes
    ----------
    clients : dict of str to Client
        All clients. A server has no business with their rows; central methods, which are there
        for comparison, do.
    engine : engine
        What carries the messages.
    seed : int
        Decides every random choice.
    history : list of Round
        What was asked so far.
    """

    clients: Mapping[str, Client]
    engine: Engine
    seed: int
    history: list[Round] = field(default_factory=list)

    @property
    def rng(self) -> np.random.Generator:
        """The server's source of random numbers: the same draws each time it is asked for."""
        return np.random.default_rng(self.seed)

    @property
    def pooled(self) -> Array:
        """All rows of all clients: for central methods only."""
        blocks = [block for client in self.clients.values() for block in client.rows.blocks()]
        return np.concatenate(blocks)

    def ask(self, request: Message | Mapping[str, Message]) -> dict[str, Any]:
        """Send one request to all clients, or to each its own, and return the replies by client.

        Only clients that answered are among them, in the order of the clients.
        """
        asked = (
            dict.fromkeys(self.clients, request) if isinstance(request, Message) else dict(request)
        )
        begun = Exchange(asked, len(self.history))
        done = self.engine.run(begun, self.clients, seed=self.seed)
        assert done.replies is not None
        self.history.append(
            Round(
                round=done.round,
                objective=np.nan,
                n_clusters=0,
                objectives={},
                bytes_up={name: reply.n_bytes for name, reply in done.replies.items()},
                bytes_down={name: asked[name].n_bytes for name in done.replies},
                seconds=done.seconds,
            )
        )
        return dict(done.replies)


class Method(FederatedClusterer):
    """Base of the methods: `fit` and `predict` are here, `_find` is the method's own.

    Those that are told how many clusters there are have a parameter `n_clusters`; those that are
    told how many a client has, `n_local_components`, as `FedGEM` has it.
    """

    engine: Engine | None
    random_state: int | np.random.RandomState | None
    means_: Array

    @abstractmethod
    def _find(self, federation: Federation) -> Array:
        """Return the clusters' means, (K, d), and keep what else `_labels_of` needs."""

    def _labels_of(self, block: Array, client: str | None) -> IntArray:
        """Return the cluster with the nearest mean."""
        return np.asarray(cdist(block, self.means_).argmin(axis=1))

    def fit(self, X: Any, y: Any = None, *, clients: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X, clients
            As in `FedGEM.fit`.
        y : ignored
        """
        params = self.get_params(deep=False)
        for name in ("n_clusters", "max_iter", "n_local_steps"):
            given = params.get(name, 1)
            require(name, given, "a whole number from 1", is_whole(given) and given >= 1)
        inputs = collect(X, clients)
        seed = int(check_random_state(self.random_state).randint(2**31))
        weights = component_weights(params.get("n_local_components", 1), None, inputs)
        federation = Federation(
            {
                name: Client(name, rows, weights[name], seed, params.get("n_init", 1))
                for name, rows in inputs.rows.items()
            },
            self.engine or LocalEngine(),
            seed,
        )
        self.clients_ = tuple(inputs.rows)
        keep_features(self, inputs)
        self.means_ = self._find(federation).astype(inputs.dtype)
        self.n_clusters_ = len(self.means_)
        self.history_ = tuple(federation.history)
        self._keep_labels(inputs)
        return self


@dataclass(frozen=True)
class Entry:
    """A method in the list.

    Attributes
    ----------
    name : str
        What tables call it.
    make : callable
        Returns the estimator.
    told : tuple of str
        What studies tell it, of the parameters that it has: "n_clusters", "n_local_components",
        and "upsilon", which the paper tunes for each data set.
    is_federated : bool
        Whether clients keep their rows.
    """

    name: str
    make: Callable[[], FederatedClusterer]
    told: tuple[str, ...] = ("n_clusters", "n_local_components", "upsilon")
    is_federated: bool = True

    def informed(self, **known: Any) -> FederatedClusterer:
        """Return the estimator, told what it may be told.

        Parameters
        ----------
        **known
            What is known of the data, and `engine`, `random_state` and `max_iter`.
        """
        estimator = self.make()
        takes = {*self.told, "engine", "random_state", "max_iter"}
        takes &= set(estimator.get_params(deep=False))
        estimator.set_params(**{name: known[name] for name in takes if name in known})
        return estimator


METHODS: dict[str, Entry] = {}
Made = TypeVar("Made", bound=Callable[[], FederatedClusterer])


def method(name: str, **about: Any) -> Callable[[Made], Made]:
    """Put an estimator, or a function that returns one, on the list that studies go through.

    Parameters
    ----------
    name : str
        What tables call it.
    **about
        As in `Entry`.
    """

    def listed(make: Made) -> Made:
        METHODS[name] = Entry(name, make, **about)
        return make

    return listed

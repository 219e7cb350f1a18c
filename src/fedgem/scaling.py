"""Federated scaling: one scale for all clients, from additive statistics alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fedgem.base import keep_features
from fedgem.client import Client
from fedgem.engines.engine import Engine
from fedgem.engines.local import LocalEngine
from fedgem.gaussian.statistics import Statistics
from fedgem.messages import Message, MomentsRequest
from fedgem.rows import Rows, block_length
from fedgem.typing import Array

# Clusters a hundred times narrower than their distances are apart on any scale.
LEAST_WITHIN = 0.01


@dataclass(frozen=True)
class Moments:
    """One exchange that adds up the clients' counts, means and variances.

    Attributes
    ----------
    names : tuple of str
        The clients to ask.
    within : bool
        Whether the variances are those within the clients' own clusters.
    full : bool
        Whether whole covariances are asked for, and how finely features are recorded.
    total : Statistics, optional
        The answer.
    resolution : array of shape (d,), optional
        The variance that rounding hides in each feature, at the median client.
    round : int
        The round that comes next.
    """

    names: tuple[str, ...]
    within: bool = False
    full: bool = False
    total: Statistics | None = None
    resolution: Array | None = None
    round: int = 0

    def requests(self) -> dict[str, Message]:
        """Ask every client once."""
        return (
            {} if self.total else dict.fromkeys(self.names, MomentsRequest(self.within, self.full))
        )

    def advance(self, replies: Mapping[str, Any], seconds: float = 0.0) -> Moments:
        """Add up what the clients said, in the clients' order."""
        statistics = [replies[name].statistics for name in self.names if name in replies]
        total = statistics[0]
        for one in statistics[1:]:
            total += one
        hidden = [reply.resolution for reply in replies.values() if reply.resolution is not None]
        resolution = np.median(hidden, axis=0) if hidden else None
        return replace(self, total=total, resolution=resolution, round=1)


def common_scale(rows: Mapping[str, Rows], engine: Engine) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of each feature over all clients.

    A feature that does not vary has the standard deviation 0, not what rounding made of it.

    Examples
    --------
    >>> import numpy as np
    >>> rows = {"a": Rows.from_array(np.zeros((1, 1))), "b": Rows.from_array(np.full((1, 1), 2.0))}
    >>> common_scale(rows, LocalEngine())
    (array([1.]), array([1.]))
    """
    clients = {name: Client(name, r, weights=np.ones(1), seed=0) for name, r in rows.items()}
    total = engine.run(Moments(tuple(rows)), clients).total
    assert total is not None
    assert total.covariances is not None
    mean, variance = total.means[0], total.covariances[0]
    # Adding up n equal numbers rounds n times; as in scikit-learn, that much is no variation.
    n_added = min(total.counts[0], block_length(len(mean)))
    rounding = (n_added * np.finfo(np.float64).eps * mean) ** 2
    return mean, np.sqrt(np.where(variance > rounding, variance, 0.0))


def within_scale(clients: Mapping[str, Client], engine: Engine) -> Array:
    """Return the standard deviation of each feature within the clients' own clusters.

    Unit covariances mean clusters of unit spread: on features whose *total* variance is one,
    clusters are narrower than the model, and close ones melt into each other.

    Parameters
    ----------
    clients : dict of str to Client
        All clients, their rows standardised by the common scale.
    engine : engine
        What carries the messages.

    Returns
    -------
    array of shape (d,)
        At least `LEAST_WITHIN`: features that hardly vary within clusters tell them apart
        without being blown up any further.
    """
    total = engine.run(Moments(tuple(clients), within=True), clients).total
    assert total is not None
    assert total.covariances is not None
    return np.asarray(np.maximum(np.sqrt(total.covariances[0]), LEAST_WITHIN))


class FederatedScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Standardise features by their mean and variance over all clients.

    Clients must share a scale and cannot see one another's data: each sends its count, means and
    variances, which add up to those of all rows together. `FedGEM(scale=True)` starts with
    the same inside, and reports clusters in the original units.

    Parameters
    ----------
    engine : engine, optional
        What carries the messages; in this process by default.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (d,)
        What is taken off each feature, and what the rest is divided by.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : array of shape (d,)
        Their names, where the input had any.

    Examples
    --------
    >>> scaler = FederatedScaler().fit({"plant-1": [[0.0], [2.0]], "plant-2": [[4.0], [6.0]]})
    >>> scaler.mean_
    array([3.])
    >>> scaler.transform([[3.0]])
    array([[0.]])
    """

    def __init__(self, *, engine: Engine | None = None) -> None:
        self.engine = engine

    def fit(self, X: Any = None, y: Any = None, *, clients: Any = None) -> Self:
        """Learn the common scale.

        Parameters
        ----------
        X : list or dict of arrays, data frames or paths, or one array or data frame
            The rows of each client, or of all; nothing where the engine's clients hold them.
        y : ignored
        clients : array of shape (N,), optional
            With one array, the client of each row.
        """
        engine = self.engine or LocalEngine()
        inputs = engine.inputs(X, clients)
        keep_features(self, inputs)
        mean, scale = common_scale(inputs.rows, engine)
        self.mean_ = mean.astype(inputs.dtype)
        self.scale_ = np.where(scale > 0, scale, 1.0).astype(inputs.dtype)
        return self

    def transform(self, X: Any) -> Array:
        """Scale rows.

        Parameters
        ----------
        X : array or data frame of shape (N, d)
            Some rows.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray((X - self.mean_) / self.scale_, dtype=X.dtype)

    def inverse_transform(self, X: Any) -> Array:
        """Undo `transform`."""
        check_is_fitted(self)
        X = validate_data(
            self, X, dtype=[np.float64, np.float32], reset=False, skip_check_array=False
        )
        return np.asarray(X * self.scale_ + self.mean_, dtype=X.dtype)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

"""What all estimators of this package have in common: clients' rows in, a label per row out."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from fedgem.errors import InputError
from fedgem.inputs import Inputs, check, open_rows
from fedgem.rows import Rows
from fedgem.typing import Array, IntArray


def keep_features(estimator: BaseEstimator, inputs: Inputs) -> None:
    """Let an estimator remember what `fit` was given, to compare later rows with."""
    estimator.n_features_in_ = next(iter(inputs.rows.values())).shape[1]
    if inputs.feature_names is not None:
        estimator.feature_names_in_ = np.array(inputs.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


class FederatedClusterer(ClusterMixin, BaseEstimator):
    """Base of the estimators: it knows the features of `fit`, and labels rows block by block."""

    clients_: tuple[str, ...]
    n_features_in_: int

    @abstractmethod
    def _labels_of(self, block: Array, client: str | None) -> IntArray:
        """Return the cluster of each row of a block."""

    def predict(self, X: Any, client: str | None = None) -> IntArray:
        """Return the cluster of each row.

        Parameters
        ----------
        X : array, data frame or path
            Some rows.
        client : str, optional
            The client that they come from: they go to clusters that it has. By default that is
            not known, and they go to those of all clients.
        """
        rows = self._open(X, client)
        self._check_client(client)
        return self._predict_rows(rows, client)

    def _predict_rows(self, rows: Rows, client: str | None) -> IntArray:
        return np.concatenate([self._labels_of(block, client) for block in rows.blocks()])

    def _keep_labels(self, inputs: Inputs) -> None:
        """Label the rows of `fit`: a list, or an array where it was given one.

        Rows that are elsewhere are labelled there.
        """
        if any(rows.are_elsewhere for rows in inputs.rows.values()):
            if hasattr(self, "labels_"):
                del self.labels_
            return
        labels = {
            # A client that never answered is not known.
            name: self._predict_rows(rows, name if name in self.clients_ else None)
            for name, rows in inputs.rows.items()
        }
        self.labels_: list[IntArray] | IntArray = list(labels.values())
        if inputs.positions is not None:
            self.labels_ = np.empty(sum(map(len, labels.values())), dtype=np.intp)
            for name, where in inputs.positions.items():
                self.labels_[where] = labels[name]

    def _open(self, X: Any, client: str | None) -> Rows:
        """Open some rows and check that they are like those of `fit`."""
        check_is_fitted(self)
        name = "X" if client is None else str(client)
        opened = open_rows(X, name)
        self._check_features(*opened)
        return check({name: opened}).rows[name]

    def _check_client(self, client: str | None) -> None:
        if client is not None and str(client) not in self.clients_:
            raise InputError(
                f"Found no client {client!r}, expected one of {', '.join(self.clients_)}."
            )

    def _check_features(self, rows: Rows, names: tuple[str, ...] | None) -> None:
        if rows.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and list(names) != list(known):
            raise InputError(
                "The feature names should match those that were passed during fit: found "
                f"{', '.join(names)}, expected {', '.join(known)}."
            )

"""Gaussian mixtures of all rows in one place, as scikit-learn fits them."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from fedgem.baselines.method import Federation, Method, method
from fedgem.engines.engine import Engine
from fedgem.typing import Array, IntArray


class CentralMixture(Method):
    """Base of the two: a cluster is a component that has rows."""

    max_iter: int
    covariance_type: str
    init_params: str

    @abstractmethod
    def _mixture(self, federation: Federation) -> GaussianMixture | BayesianGaussianMixture:
        """Return the mixture, not yet fitted."""

    def _settings(self, federation: Federation) -> dict[str, Any]:
        """Return what both take."""
        return {
            "covariance_type": self.covariance_type,
            "init_params": self.init_params,
            "max_iter": self.max_iter,
            "random_state": federation.seed,
        }

    def _find(self, federation: Federation) -> Array:
        self.mixture_ = self._mixture(federation)
        X = federation.pooled
        with warnings.catch_warnings():  # it is not to converge, and rows may be equal
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.mixture_.fit(X)
        self.n_iter_ = self.mixture_.n_iter_
        self.used_ = np.unique(self.mixture_.predict(X))
        return np.asarray(self.mixture_.means_[self.used_])

    def _labels_of(self, block: Array, client: str | None) -> IntArray:
        """Return the cluster most likely to have made each row, of those that have rows."""
        return np.asarray(self.mixture_.predict_proba(block)[:, self.used_].argmax(axis=1))


@method("GMM (central)", is_federated=False)
class CentralGMM(CentralMixture):
    """A Gaussian mixture, by EM.

    Parameters
    ----------
    n_clusters : int
        The number of components.
    max_iter : int
        The number of EM steps, 20 in the published comparison.
    covariance_type, init_params : str
        As in scikit-learn.
    engine : ignored
    random_state : int, RandomState or None
        Decides the start.

    Attributes
    ----------
    n_clusters_ : int
        The number of components that have rows.
    n_iter_ : int
        The number of steps.
    mixture_ : GaussianMixture
        The mixture.
    used_ : array of shape (n_clusters_,)
        The component that is each cluster.

    Examples
    --------
    >>> model = CentralGMM(2, random_state=0).fit({"a": [[0.0], [1.0]], "b": [[8.0], [9.0]]})
    >>> np.sort(model.means_, axis=0).round(6)
    array([[0.5],
           [8.5]])
    """

    def __init__(
        self,
        n_clusters: int = 8,
        max_iter: int = 20,
        covariance_type: str = "full",
        init_params: str = "kmeans",
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.covariance_type = covariance_type
        self.init_params = init_params
        self.engine = engine
        self.random_state = random_state

    def _mixture(self, federation: Federation) -> GaussianMixture:
        return GaussianMixture(self.n_clusters, **self._settings(federation))


@method("DP-GMM (central)", is_federated=False)
class CentralDPGMM(CentralMixture):
    """A Gaussian mixture under a Dirichlet process, by variational inference (Antoniak, 1974).

    It is told no number of clusters, only a bound: as many components as all clients have
    together.

    Parameters
    ----------
    n_local_components : int, or one for each client
        How many each client has.
    max_iter : int
        The number of steps, 20 in the published comparison.
    covariance_type, init_params : str
        As in scikit-learn; round components agree with the published figures.
    engine : ignored
    random_state : int, RandomState or None
        Decides the start.

    Attributes
    ----------
    n_clusters_ : int
        The number of components that have rows.
    n_iter_ : int
        The number of steps.
    mixture_ : BayesianGaussianMixture
        The mixture.
    used_ : array of shape (n_clusters_,)
        The component that is each cluster.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50, 1))
    >>> CentralDPGMM(1, random_state=0).fit({"a": X, "b": X + 20}).n_clusters_
    2
    """

    def __init__(
        self,
        n_local_components: object = 2,
        max_iter: int = 20,
        covariance_type: str = "spherical",
        init_params: str = "k-means++",
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_local_components = n_local_components
        self.max_iter = max_iter
        self.covariance_type = covariance_type
        self.init_params = init_params
        self.engine = engine
        self.random_state = random_state

    def _mixture(self, federation: Federation) -> BayesianGaussianMixture:
        return BayesianGaussianMixture(
            n_components=sum(len(client.weights) for client in federation.clients.values()),
            weight_concentration_prior_type="dirichlet_process",
            **self._settings(federation),
        )


@method("GMM, paper (central)", is_federated=False)
def paper_gmm() -> CentralGMM:
    """Return the mixture that the published figures agree with: round components."""
    return CentralGMM(covariance_type="spherical", init_params="k-means++")

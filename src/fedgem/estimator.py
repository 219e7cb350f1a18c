"""FedGEM with the face of a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fedgem import checkpoints, storage
from fedgem.checks import (
    component_weights,
    final_radii,
    is_number,
    is_whole,
    refuse_constant_columns,
    refuse_too_many_for_cannot_link,
    require,
)
from fedgem.client import Client
from fedgem.consensus import (
    Consensus,
    ConsensusSettings,
    interval,
    number_probabilities,
    side_by_side,
)
from fedgem.engines.local import LocalEngine
from fedgem.enrolment import Enrolment, extended, padded, request_for, unfolded
from fedgem.errors import InputError
from fedgem.fitted import FittedMixture, fitted
from fedgem.gaussian.covariances import CovarianceType, Gaussians, matrices
from fedgem.gaussian.density import log_joint, log_of
from fedgem.gaussian.mixture import weights_of
from fedgem.gaussian.subspace import Subspace, principal, whole
from fedgem.inputs import check, collect, open_rows
from fedgem.messages import EnrolReply
from fedgem.novelty import Calibration, novelty
from fedgem.rows import Rows
from fedgem.scaling import Moments, common_scale, within_scale
from fedgem.server import Clusters, Components, Round, Settings, Training, aggregate
from fedgem.shared import local_weights
from fedgem.tuning import Scoring, choose_upsilon
from fedgem.typing import Array, BoolArray, IntArray

MODEL_FORMAT = "fedgem model"
# The least variance that a component has in any direction, relative to that of all rows.
REG_COVAR = 1e-6
# Attributes that only one of the two ways to fit leaves behind.
OF_ONE_PATH = (
    *("mixture_", "n_clusters_scores_", "n_clusters_probabilities_", "n_clusters_interval_"),
    *("upsilon_", "upsilon_scores_"),
)
ROUNDS_DEPEND_ON = (
    *("covariance_type", "learn_weights", "max_iter", "n_init", "n_local_steps", "tol"),
    *("cannot_link", "scale", "random_state"),
)


class FedGEM(ClusterMixin, BaseEstimator):
    """Find the clusters that several clients share, their number, and who has which.

    Each client fits a Gaussian mixture to its own rows; the server groups the components of
    different clients whose uncertainty sets overlap. Only components cross between them.

    Parameters
    ----------
    n_local_components : int, sequence or dict, default=2
        The number of components K_g of each client: one number for all, or one for each client,
        in order or by name.
    covariance_type : {"identity", "spherical", "diag", "tied", "full"}, default="identity"
        The form of the components' covariances. All but identities are learned, shrunk towards
        each client's covariance within its own clusters. "tied" is tied at each client.
    weights : sequence or dict of arrays, optional
        The weights of each client's components, in order or by name; equal by default.
    learn_weights : bool, default=False
        Whether `weights` are learned from there on, or stay.
    max_iter : int, default=10
        The most rounds T of collaborative training.
    n_init : int, default=3
        The k-means++ starts that each client tries; it keeps the likeliest.
    n_local_steps : int, default=1
        The EM steps S that a client takes in a round.
    tol : float, default=1e-4
        Training ends early when no mean moves farther in a round than this share of the spread
        of all means, in units of the components' pooled covariance.
    upsilon : float or "auto", default="auto"
        How far the final aggregation reaches: two components join when the balls of squared
        radius ``upsilon * R_min / (pi * sqrt(N))`` around their means overlap,
        distances being taken where the components' pooled covariance is the identity. "auto"
        chooses it by the silhouette of rows that did not train; where that does not tell, as under
        `cannot_link`, it takes the number of clusters that holds over the widest range.
    final_radius : float, sequence or dict, optional
        The final radii themselves, as distances: one for all components, or for each client a
        number or one for each of its components. Takes the place of `upsilon`.
    cannot_link : bool, default=True
        Whether two components of one client must stay in different clusters. It compares all
        pairs of components and takes at most 4096 of them.
    scale : bool, default=False
        Whether to scale the features first: by their means and variances over all clients, and
        then by their spread within the clients' own clusters, which identity covariances take to
        be one. Off here as everywhere in scikit-learn; the command line turns it on. Results are
        in the original units either way.
    engine : engine, optional
        What carries the messages; in this process, on all cores, by default.
    random_state : int, RandomState or None, default=None
        Decides every random choice, at every client.
    verbose : int, default=0
        1 prints a line for every round.

    Attributes
    ----------
    n_clusters_ : int
        The number of clusters found.
    means_, covariances_ : arrays of shape (K, d) and (K, d, d)
        The clusters, the one with most rows first.
    weights_ : array of shape (G, K)
        Each client's share of each cluster, 0 where absent.
    memberships_ : array of bool of shape (G, K)
        Who has which cluster.
    labels_ : list of arrays, or array of shape (N,)
        The cluster of each row: one array for each client, or one in all where `fit` got one.
    clients_ : tuple of str
        The clients' names, in the order of `weights_`.
    components_ : Components
        The clients' components behind the clusters.
    component_labels_ : array of shape (C,)
        The cluster of each component.
    merge_tree_ : MergeTree
        The whole path: the number of clusters against its cost, here upsilon.
    upsilon_ : float
        The upsilon used, also where it was chosen; 1 where `final_radius` was given.
    upsilon_scores_ : dict of str to array
        What "auto" chose from: "upsilon", "n_clusters" and "silhouette".
    history_ : tuple of Round
        A row for each round: objective, number of super-clusters, bytes up and down, seconds.
        ``pandas.DataFrame(model.history_)`` makes a table of it.
    scale_ : array of shape (d,)
        What `scale` divided each feature by; ones without it.
    n_iter_ : int
        The number of rounds.
    converged_ : bool
        Whether training ended before `max_iter`.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : array of shape (d,)
        Their names, where the input had any.

    Examples
    --------
    >>> import numpy as np
    >>> from fedgem import FedGEM
    >>> a = [[0.0], [0.1], [5.0], [5.1]]
    >>> b = [[5.0], [5.2], [9.0], [9.1]]
    >>> model = FedGEM(random_state=0).fit({"plant-a": a, "plant-b": b})
    >>> model.n_clusters_
    3
    >>> model.memberships_.sum(axis=1)
    array([2, 2])
    """

    def __init__(
        self,
        n_local_components: int | str | Sequence[int] | Mapping[str, int] = "auto",
        *,
        covariance_type: CovarianceType = "full",
        weights: Sequence[Any] | Mapping[str, Any] | None = None,
        learn_weights: bool = True,
        max_iter: int = 10,
        n_init: int = 3,
        n_local_steps: int = 1,
        tol: float = 1e-4,
        upsilon: float | str | None = None,
        final_radius: float | Sequence[Any] | Mapping[str, Any] | None = None,
        cannot_link: bool = True,
        scale: bool = False,
        engine: LocalEngine | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_local_components = n_local_components
        self.covariance_type = covariance_type
        self.weights = weights
        self.learn_weights = learn_weights
        self.max_iter = max_iter
        self.n_init = n_init
        self.n_local_steps = n_local_steps
        self.tol = tol
        self.upsilon = upsilon
        self.final_radius = final_radius
        self.cannot_link = cannot_link
        self.scale = scale
        self.engine = engine
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, upsilon: float = 2.0, **params: Any) -> Self:
        """Return the paper's own algorithm.

        Identity covariances, fixed equal weights, a k-means++ start, T = 10 rounds of S = 1 local
        step without an early end, and final radii by the paper's heuristic. As in the paper, two
        components of one client may end up in one cluster; the program published with it forbids
        that, as ``cannot_link=True`` does, and on data whose clusters touch it has to.

        Parameters
        ----------
        upsilon : float
            The heuristic's factor, which the paper tunes for each data set.
        **params
            Any other parameter.

        Examples
        --------
        >>> FedGEM.paper(upsilon=5.0, n_local_components=3)
        FedGEM(cannot_link=False, n_init=1, n_local_components=3, tol=0.0, upsilon=5.0)
        """
        preset: dict[str, Any] = {
            "n_local_components": 2,
            "covariance_type": "identity",
            "learn_weights": False,
            "max_iter": 10,
            "n_init": 1,
            "n_local_steps": 1,
            "tol": 0.0,
            "cannot_link": False,
        }
        return cls(**preset | {"upsilon": upsilon} | params)

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        clients: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callbacks: Iterable[Callable[[Round], None]] = (),
    ) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : list or dict of arrays, data frames or paths, or one array or data frame
            The rows of each client; paths name CSV, Parquet, Feather, NPY or NPZ files, of which
            Parquet and NPY may be larger than memory. One array is one client, or several with
            `clients`.
        y : ignored
        clients : array of shape (N,), optional
            With one array, the client of each row.
        checkpoint : path, optional
            A file to save to after every round. If it exists, training goes on from it, to the
            same result as if it had never stopped.
        callbacks : iterable of callables
            Called with each `Round` when it is over.
        """
        self._check_params()
        inputs = collect(X, clients)
        seed = int(check_random_state(self.random_state).randint(2**31))
        weights = component_weights(self.n_local_components, self.weights, inputs)
        if self.learn_weights:
            for name, own in weights.items():
                holds = bool(np.all(own > 0))
                require(f"Client {name!r}, weights", own, "none of zero to learn from", holds)
        if self._is_papers and self.cannot_link:
            refuse_too_many_for_cannot_link(weights)
        saved: Training | Consensus | None = None
        if checkpoint is not None:
            parameters = {name: getattr(self, name) for name in ROUNDS_DEPEND_ON}
            if not is_whole(self.random_state):
                parameters["random_state"] = None
            belongs_to = checkpoints.fingerprint(inputs, weights, parameters)
            if Path(checkpoint).exists():
                seed, saved = checkpoints.resume(checkpoint, belongs_to)

        engine = self.engine or LocalEngine()
        shift: Array = np.zeros(next(iter(inputs.rows.values())).shape[1])
        scale: Array = np.ones_like(shift)

        def clients_of(
            rows_of: Callable[[Rows], Rows] = lambda rows: rows,
        ) -> dict[str, Client]:
            return {
                name: Client(
                    name,
                    rows_of(rows),
                    weights[name],
                    seed,
                    self.n_init,
                    covariance_type=self.covariance_type,
                    learn_weights=self.learn_weights,
                )
                for name, rows in inputs.rows.items()
            }

        def scaled(rows: Rows) -> Rows:
            return rows.scaled(shift, scale) if self.scale else rows

        if self.scale:
            shift, scale = common_scale(inputs.rows, engine)
            refuse_constant_columns(shift, scale, inputs.feature_names)
            if self._is_papers:
                scale = scale * within_scale(clients_of(scaled), engine)

        def on_round(state: Training | Consensus) -> None:
            if checkpoint is not None:
                checkpoints.save(checkpoint, belongs_to, seed, state)
            if self.verbose:
                row = state.history[-1]
                print(
                    f"round {row.round}: objective {row.objective:.6g}, "
                    f"{row.n_clusters} super-clusters, {row.seconds:.3f} s"
                )
            for callback in callbacks:
                callback(state.history[-1])

        self.n_features_in_ = len(shift)
        if inputs.feature_names is not None:
            self.feature_names_in_ = np.array(inputs.feature_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        for name in OF_ONE_PATH:
            if hasattr(self, name):
                delattr(self, name)
        self.scale_ = scale.astype(inputs.dtype)
        if self._is_papers:
            settings = Settings(
                self.max_iter,
                self.n_local_steps,
                self.tol,
                self.cannot_link,
                self.covariance_type,
                self.learn_weights,
            )
            training = Training(tuple(inputs.rows), settings, last=self.max_iter == 0)
            if isinstance(saved, Training):
                training = saved
            radii = None if self.final_radius is None else final_radii(self.final_radius, weights)
            all_clients = clients_of(scaled)
            training = engine.run(training, all_clients, seed=seed, on_round=on_round)
            self._keep_clusters(
                training, self._aggregate(training, all_clients, radii, engine, seed), shift, scale
            )
        else:
            subspace, floor = self._subspace(clients_of(scaled), engine)
            sharing = Consensus(
                tuple(inputs.rows),
                ConsensusSettings(self.max_iter, self.covariance_type, floor),
                np.zeros(len(weights), np.intp),
                np.array([len(own) for own in weights.values()]),
            )
            if isinstance(saved, Consensus):
                sharing = saved
            projected = clients_of(
                lambda rows: scaled(rows).projected(subspace.centre, subspace.basis)
            )
            sharing = engine.run(sharing, projected, seed=seed, on_round=on_round)
            self._keep_shared(sharing, subspace, shift, scale)
        self._calibrate(inputs.rows, engine, seed)
        self.means_ = self.means_.astype(inputs.dtype)
        labels = {
            # A client that never answered has no weights of its own.
            name: self._predict_rows(r, self._log_weights(name if name in self.clients_ else None))
            for name, r in inputs.rows.items()
        }
        self.labels_: list[IntArray] | IntArray = list(labels.values())
        if inputs.positions is not None:
            self.labels_ = np.empty(sum(map(len, labels.values())), dtype=np.intp)
            for name, where in inputs.positions.items():
                self.labels_[where] = labels[name]
        return self

    @property
    def _is_papers(self) -> bool:
        """Whether components are trained and joined by their uncertainty sets, as in the paper."""
        return self.upsilon is not None or self.final_radius is not None

    def _subspace(
        self, clients: Mapping[str, Client], engine: LocalEngine
    ) -> tuple[Subspace, Array]:
        """Return the subspace to fit in, and the variances that keep covariances sound there."""
        full = self.covariance_type in ("full", "tied")
        moments = engine.run(Moments(tuple(clients), full=True), clients)
        total, hidden = moments.total, moments.resolution
        assert total is not None
        assert total.covariances is not None
        assert hidden is not None
        subspace = principal(total) if full else whole(len(hidden))
        variances = np.einsum("dr,de,er->r", subspace.basis, total.covariances[0], subspace.basis)
        floor = hidden @ np.square(subspace.basis) + REG_COVAR * variances
        return subspace, np.maximum(floor, REG_COVAR**2 * (variances.max() or 1.0))

    means_: Array
    calibration_: Array
    clients_: tuple[str, ...]

    def _keep_clusters(
        self, training: Training, clusters: Clusters, shift: Array, scale: Array
    ) -> None:
        """Keep what the final aggregation found, in the features' own units."""
        self.n_clusters_ = len(clusters.means)
        self.means_ = clusters.means * scale + shift
        self.weights_ = clusters.weights
        self.memberships_: BoolArray = clusters.weights > 0
        self.component_labels_ = clusters.of_components
        self.covariances_ = np.tile(np.diag(np.square(self.scale_)), (self.n_clusters_, 1, 1))
        if clusters.covariances is not None:
            # In float64 whatever the input: rounded, one might be a covariance no more.
            self.covariances_ = clusters.covariances * np.outer(scale, scale)
        self.history_ = training.history
        self.n_iter_ = len(training.history)
        self.converged_ = self.n_iter_ <= self.max_iter

    def _keep_shared(
        self, sharing: Consensus, subspace: Subspace, shift: Array, scale: Array
    ) -> None:
        """Keep the mixture that the clients share, in the features' own units."""
        settings, mixture = sharing.settings, sharing.result
        assert mixture is not None
        self.mixture_, order, self.means_, self.covariances_ = fitted(
            mixture, settings.covariance_type, settings.floor, subspace, shift, scale
        )
        self.n_clusters_ = len(order)
        reached = np.array([name in sharing.own for name in sharing.names])
        reached |= sharing.n_rows > 0
        self.clients_ = tuple(np.array(sharing.names, object)[reached].tolist())
        by_part = local_weights(mixture, sharing.n_local)[reached]
        self.weights_ = (by_part @ np.eye(len(order))[mixture.cluster_of])[:, order]
        self.memberships_ = self.weights_ > 0
        own = side_by_side(sharing.own, sharing)
        n_rows = sharing.n_rows[reached]
        owners = np.cumsum(reached)[own.owners] - 1
        weights = np.concatenate([weights_of(some.counts) for some in sharing.own.values()])
        self.components_ = Components(
            self.clients_, owners, own.statistics.means, weights, own.counts, n_rows, own.shapes
        )
        densities = self.mixture_.log_densities_at(own.statistics.means)
        self.component_labels_ = (densities + log_of(self.weights_)[owners]).argmax(axis=1)
        assert sharing.tree is not None
        self.merge_tree_ = sharing.tree
        numbers = np.array(sorted(sharing.best))
        self.n_clusters_scores_ = {
            "n_clusters": numbers,
            "bic": np.array([sharing.score(sharing.best[k]) for k in numbers]),
        }
        self.n_clusters_probabilities_ = number_probabilities(sharing)
        self.n_clusters_interval_ = interval(self.n_clusters_probabilities_)
        self.history_ = sharing.history
        self.n_iter_ = len(sharing.history)
        self.converged_ = True

    def predict(self, X: Any, client: str | None = None) -> IntArray:
        """Return the cluster of each row.

        Parameters
        ----------
        X : array, data frame or path
            Some rows.
        client : str, optional
            Whose weights to use: rows go to clusters that this client has. By default the
            clients' weights are pooled.
        """
        rows = self._open(X, client)
        return self._predict_rows(rows, self._log_weights(client))

    def predict_proba(self, X: Any, client: str | None = None) -> Array:
        """Return each row's probability of each cluster, an array of shape (N, K).

        Parameters
        ----------
        X, client
            As in `predict`.
        """
        return np.asarray(softmax(self._joint(X, client), axis=1))

    def score_samples(self, X: Any, client: str | None = None) -> Array:
        """Return the log-likelihood of each row.

        Parameters
        ----------
        X, client
            As in `predict`.
        """
        return np.asarray(logsumexp(self._joint(X, client), axis=1))

    def score(self, X: Any, y: Any = None, client: str | None = None) -> float:
        """Return the mean log-likelihood of the rows.

        Parameters
        ----------
        X, client
            As in `predict`.
        y : ignored
        """
        return float(self.score_samples(X, client).mean())

    def novelty(self, X: Any) -> Array:
        """Return how foreign each row is to every known cluster, as a p-value: small is foreign.

        One in a hundred rows of known clusters has a novelty below 0.01, whatever the clusters'
        shapes: the clients' own rows calibrate it.

        Parameters
        ----------
        X : array, data frame or path
            Some rows.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> clients = [rng.normal(size=(200, 2)), rng.normal(size=(200, 2))]
        >>> model = FedGEM(random_state=0).fit(clients)
        >>> model.novelty([[0.0, 0.5], [9.0, 9.0]]) < 0.01
        array([False,  True])
        """
        rows, mixture = self._open(X, None), self._mixture()
        return np.concatenate([novelty(b, mixture, self.calibration_) for b in rows.blocks()])

    def enroll(self, X: Any, name: str) -> Self:
        """Add a client that arrives after training, without training the others again.

        The newcomer finds which clusters it has, and clusters that nobody had before; only
        summaries of both leave it. Known clusters stay as they are and keep their numbers, new
        ones follow. `labels_` gains the newcomer's. What tells of the search for the number of
        clusters (`merge_tree_`, `history_`, `n_clusters_probabilities_`) stays that of `fit`.

        Parameters
        ----------
        X : array, data frame or path
            The newcomer's rows.
        name : str
            What to call it.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> model = FedGEM(random_state=0).fit([rng.normal(size=(200, 2)) for _ in range(2)])
        >>> rows = np.concatenate([rng.normal(size=(50, 2)), rng.normal(9.0, size=(50, 2))])
        >>> model.enroll(rows, "plant-3").n_clusters_
        2
        >>> model.predict([[9.0, 9.0]], client="plant-3")
        array([1])
        """
        check_is_fitted(self)
        if self._is_papers:
            raise InputError(
                "enroll needs a mixture that all clients share: found an upsilon or a "
                "final_radius, expected neither."
            )
        name = str(name)
        if name in self.clients_:
            raise InputError(f"Found a client called {name!r} already, expected a new name.")
        rows, known = self._open(X, name), unfolded(self.mixture_)
        seed = int(check_random_state(self.random_state).randint(2**31))
        client = Client(
            name,
            rows.scaled(known.shift, known.scale),
            np.zeros(0),
            seed,
            self.n_init,
            covariance_type=self.covariance_type,
        )
        engine, n_rows = self.engine or LocalEngine(), self.components_.n_rows @ self.weights_
        asked = Enrolment(name, request_for(known, n_rows, self.calibration_))
        reply = engine.run(asked, {name: client}, seed=seed).reply
        assert reply is not None
        self._keep_newcomer(name, known, reply)
        known = self.mixture_
        own = {name: self.weights_[-1]}
        n_rows = self.components_.n_rows @ self.weights_
        asked_scores = Calibration.of(known, own, n_rows)
        counts = engine.run(asked_scores, {name: client}, seed=seed).counts
        assert counts is not None
        self.calibration_ = self.calibration_ + counts
        if hasattr(self, "labels_"):  # a loaded model has none
            labels = self._predict_rows(rows, self._log_weights(name))
            if isinstance(self.labels_, list):
                self.labels_ = [*self.labels_, labels]
            else:
                self.labels_ = np.concatenate([self.labels_, labels])
        return self

    def _keep_newcomer(self, name: str, known: FittedMixture, reply: EnrolReply) -> None:
        """Add a client and its new clusters."""
        old, n_new = self.components_, len(reply.new.means)
        means, covariances = old.means, old.covariances
        assert covariances is not None
        if n_new:
            self.mixture_ = extended(known, reply)
            means, covariances = padded(means, covariances, self.n_features_in_)
            subspace, scale = known.subspace, known.scale
            new = matrices(self.mixture_.components)[-n_new:]
            self.means_ = np.concatenate(
                [
                    self.means_,
                    (reply.new.means @ subspace.back + subspace.centre) * scale + known.shift,
                ]
            ).astype(self.means_.dtype)
            new = (subspace.back.T @ new @ subspace.back) * np.outer(scale, scale)
            self.covariances_ = np.concatenate([self.covariances_, new])
        mixture = self.mixture_
        self.n_clusters_ = mixture.n_clusters
        self.clients_ = (*self.clients_, name)
        self.weights_ = np.vstack([np.pad(self.weights_, ((0, 0), (0, n_new))), reply.weights])
        self.memberships_ = self.weights_ > 0
        weights = reply.weights[mixture.cluster_of] * mixture.shares
        has = np.flatnonzero(weights > 0)
        n_features = means.shape[1]
        self.components_ = Components(
            self.clients_,
            np.concatenate([old.owners, np.full(len(has), len(self.clients_) - 1)]),
            np.concatenate([means, reply.statistics.means[has, :n_features]]),
            np.concatenate([old.weights, weights[has]]),
            np.concatenate([old.counts, reply.statistics.counts[has]]),
            np.append(old.n_rows, reply.n_rows),
            np.concatenate([covariances, matrices(mixture.components)[has]]),
        )
        self.component_labels_ = np.concatenate([self.component_labels_, mixture.cluster_of[has]])

    def _mixture(self) -> FittedMixture:
        """Return the clusters as a mixture, whichever way they were found."""
        if not self._is_papers:
            return self.mixture_
        covariances = self.covariances_ / np.outer(self.scale_, self.scale_)
        components = Gaussians(self.means_ / self.scale_)
        if self.covariance_type in ("diag", "spherical"):
            variances = np.diagonal(covariances, axis1=1, axis2=2)
            components = Gaussians(components.means, variances, "diag")
        elif self.covariance_type in ("full", "tied"):
            components = Gaussians(components.means, covariances, "full")
        n_clusters, n_features = components.means.shape
        return FittedMixture(
            np.zeros(n_features),
            self.scale_,
            whole(n_features),
            components,
            np.arange(n_clusters),
            np.ones(n_clusters),
        )

    def _calibrate(self, rows: Mapping[str, Rows], engine: LocalEngine, seed: int) -> None:
        """Count how far the clients' rows lie from the clusters, which calibrates novelty."""
        mixture = self._mixture()
        clients = {
            name: Client(name, rows[name].scaled(mixture.shift, mixture.scale), np.ones(1), seed)
            for name in self.clients_
        }
        weights = dict(zip(self.clients_, self.weights_, strict=True))
        asked = Calibration.of(mixture, weights, self.components_.n_rows @ self.weights_)
        counts = engine.run(asked, clients, seed=seed).counts
        assert counts is not None
        self.calibration_ = counts

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file without pickle; see `fedgem.storage` for its format.

        The labels of the training rows stay out of it: they belong to the clients.

        Parameters
        ----------
        path : path
            Where to.
        """
        check_is_fitted(self)
        params = self.get_params(deep=False) | {"engine": None}
        if isinstance(self.random_state, np.random.RandomState):
            params["random_state"] = None
        fitted = {
            name: value.tolist() if name == "feature_names_in_" else value
            for name, value in vars(self).items()
            if name.endswith("_") and name != "labels_"
        }
        storage.save(path, MODEL_FORMAT, {"params": params, "fitted": fitted})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : path
            The file.
        """
        content = storage.load(path, MODEL_FORMAT)
        model = cls(**content["params"])
        for name, value in content["fitted"].items():
            setattr(model, name, np.array(value, object) if name == "feature_names_in_" else value)
        return model

    def _aggregate(
        self,
        training: Training,
        clients: Mapping[str, Client],
        radii: Mapping[str, Array] | None,
        engine: LocalEngine,
        seed: int,
    ) -> Clusters:
        """Run the final aggregation and keep what it says."""
        components = Components.of(training)
        sizes = np.bincount(components.owners)
        squared_radii = None
        if radii is not None:
            squared_radii = np.square(np.concatenate([radii[name] for name in components.names]))
        tree = components.merge_tree(squared_radii, cannot_link=self.cannot_link)
        scores: dict[str, Any] | None = None
        if squared_radii is not None:
            self.upsilon_ = 1.0
        elif self.upsilon == "auto":

            def train(folded: Mapping[str, Client]) -> Components:
                start = Training(
                    tuple(folded), training.settings, last=training.settings.max_iter == 0
                )
                return Components.of(engine.run(start, folded, seed=seed))

            def run(scoring: Scoring, folded: Mapping[str, Client]) -> Scoring:
                return engine.run(scoring, folded, seed=seed)

            reached = {name: clients[name] for name in components.names}
            self.upsilon_, candidates, silhouettes = choose_upsilon(
                reached, tree, sizes, train, run, cannot_link=self.cannot_link
            )
            scores = {
                "upsilon": candidates,
                "n_clusters": np.array([tree.cut(u).max() + 1 for u in candidates]),
                "silhouette": silhouettes,
            }
        else:
            assert self.upsilon is not None
            self.upsilon_ = float(self.upsilon)
        if scores is not None:
            self.upsilon_scores_ = scores
        elif hasattr(self, "upsilon_scores_"):
            del self.upsilon_scores_
        clusters = aggregate(components, tree.cut(self.upsilon_))
        self.merge_tree_ = tree
        self.components_ = components
        self.clients_ = components.names
        return clusters

    def _check_params(self) -> None:
        for name, least in (("max_iter", 0), ("n_init", 1), ("n_local_steps", 1)):
            value = getattr(self, name)
            require(name, value, f"a whole number from {least}", is_whole(value) and value >= least)
        known = self.covariance_type in get_args(CovarianceType)
        expected = f"one of {', '.join(get_args(CovarianceType))}"
        require("covariance_type", self.covariance_type, expected, known)
        for name in ("cannot_link", "scale"):
            value = getattr(self, name)
            require(name, value, "True or False", isinstance(value, (bool, np.bool_)))
        require("tol", self.tol, "a number from 0", is_number(self.tol) and self.tol >= 0)
        known = self.upsilon in ("auto", None) or (
            is_number(self.upsilon) and float(self.upsilon) >= 0
        )
        require("upsilon", self.upsilon, "None, a number from 0, or 'auto'", known)
        if not self._is_papers:
            for name, value, only in (
                ("weights", self.weights, self.weights is None),
                ("learn_weights", self.learn_weights, self.learn_weights is True),
                ("n_local_steps", self.n_local_steps, self.n_local_steps == 1),
                ("max_iter", self.max_iter, self.max_iter >= 1),
            ):
                expected = "the default, or an upsilon to join components by, as in the paper"
                require(name, value, expected, only)
        elif self.n_local_components == "auto":
            expected = "numbers of components where upsilon or final_radius is given"
            require("n_local_components", "auto", expected, False)

    def _open(self, X: Any, client: str | None) -> Rows:
        """Open some rows and check that they are like those of `fit`."""
        check_is_fitted(self)
        name = "X" if client is None else str(client)
        opened = open_rows(X, name)
        self._check_features(*opened)
        return check({name: opened}).rows[name]

    def _check_features(self, rows: Rows, names: tuple[str, ...] | None) -> None:
        if rows.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {rows.shape[1]} features, but FedGEM is expecting "
                f"{self.n_features_in_} features as input."
            )
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and list(names) != list(known):
            raise InputError(
                "The feature names should match those that were passed during fit: found "
                f"{', '.join(names)}, expected {', '.join(known)}."
            )

    def _log_weights(self, client: str | None) -> Array:
        if client is None:
            weights = self.components_.n_rows @ self.weights_ / self.components_.n_rows.sum()
        elif str(client) in self.clients_:
            weights = self.weights_[self.clients_.index(str(client))]
        else:
            raise InputError(
                f"Found no client {client!r}, expected one of {', '.join(self.clients_)}."
            )
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(weights))

    def _block_joint(self, block: Array, log_weights: Array) -> Array:
        if not self._is_papers:
            return np.asarray(self.mixture_.log_densities(block) + log_weights)
        means, covariances = self.means_ / self.scale_, self.covariances_
        if self.covariance_type == "identity":
            return log_joint(block / self.scale_, Gaussians(means), log_weights)
        if self.covariance_type in ("diag", "spherical"):
            variances = np.diagonal(covariances, axis1=1, axis2=2) / np.square(self.scale_)
            return log_joint(block / self.scale_, Gaussians(means, variances, "diag"), log_weights)
        covariances = covariances / np.outer(self.scale_, self.scale_)
        return log_joint(block / self.scale_, Gaussians(means, covariances, "full"), log_weights)

    def _joint(self, X: Any, client: str | None) -> Array:
        """Return log(pi_k p_k(x)) of every row and cluster."""
        rows = self._open(X, client)
        log_weights = self._log_weights(client)
        joint = np.concatenate([self._block_joint(b, log_weights) for b in rows.blocks()])
        return np.asarray(joint - np.log(self.scale_).sum()) if self._is_papers else joint

    def _predict_rows(self, rows: Rows, log_weights: Array) -> IntArray:
        return np.concatenate(
            [self._block_joint(b, log_weights).argmax(axis=1) for b in rows.blocks()]
        )

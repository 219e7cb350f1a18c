"""FedGEM with the face of a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fedgem import checkpoints, storage
from fedgem.base import FederatedClusterer, keep_features
from fedgem.checks import (
    check_parameters,
    component_weights,
    final_radii,
    is_whole,
    refuse_constant_columns,
    refuse_too_many_for_cannot_link,
    require,
)
from fedgem.client import Client
from fedgem.consensus import Consensus
from fedgem.engines.engine import Engine
from fedgem.engines.local import LocalEngine
from fedgem.enrolment import Enrolment, extended, padded, request_for, unfolded
from fedgem.errors import InputError
from fedgem.fitted import FittedMixture
from fedgem.gaussian.covariances import CovarianceType, Gaussians, matrices
from fedgem.gaussian.subspace import whole
from fedgem.joining import fit_joined, scaled_joint
from fedgem.messages import EnrolReply
from fedgem.novelty import Calibration, novelty
from fedgem.rows import Rows
from fedgem.scaling import common_scale, within_scale
from fedgem.server import Components, Round, Settings, Training
from fedgem.sharing import fit_shared
from fedgem.typing import Array, BoolArray, IntArray

MODEL_FORMAT = "fedgem model"
# Attributes that only one of the two ways to fit leaves behind.
OF_ONE_WAY = (
    *("mixture_", "n_clusters_scores_", "n_clusters_probabilities_", "n_clusters_interval_"),
    *("reliance_", "own_components_"),
    *("upsilon_", "upsilon_scores_"),
)
ROUNDS_DEPEND_ON = (
    *("covariance_type", "learn_weights", "max_iter", "n_init", "n_local_steps", "tol"),
    *("cannot_link", "scale", "random_state"),
)


class FedGEM(FederatedClusterer):
    """Find the clusters that several clients share, their number, and who has which.

    Each client fits a Gaussian mixture to its own rows, and finds out how many components it
    takes. There are two ways to go on, and in both only summaries of components leave a client:

    *A shared mixture*, the default. Clients train a mixture that they share, each with weights of
    its own for no more clusters than it has components. The BIC chooses the number of clusters.

    *The paper's way*, where `upsilon` or `final_radius` is given. Clients go on training their own
    components together, and the server joins those of different clients whose uncertainty sets
    overlap. `FedGEM.paper` is this with the paper's choice of everything else.

    Parameters
    ----------
    n_local_components : "auto", int, sequence or dict, default="auto"
        The number of components K_g of each client: one number for all, or one for each client,
        in order or by name. By default each client finds its own, which takes more time and a
        shared mixture.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}, default="full"
        The form of the components' covariances. All but identities are learned, and shrunk, so
        that few rows suffice. "tied" is one for all clusters of a shared mixture, and in the
        paper's way one at each client.
    weights : sequence or dict of arrays, optional
        Only in the paper's way: the weights of each client's components, in order or by name;
        equal by default.
    learn_weights : bool, default=True
        Whether weights are learned. They stay what they are only in the paper's way.
    max_iter : int, default=10
        The most rounds T of collaborative training; of a shared mixture, the rounds for each
        number of clusters tried, and twice as many before.
    n_init : int, default=3
        The k-means++ starts that each client tries; it keeps the likeliest.
    n_local_steps : int, default=1
        Only in the paper's way: the EM steps S that a client takes in a round.
    tol : float, default=1e-4
        Only in the paper's way: training ends early when no mean moves farther in a round than
        this share of the spread of all means, in units of the components' pooled covariance.
    upsilon : float or "auto", optional
        Asks for the paper's way and says how far its final aggregation reaches: two components
        join when the balls of squared radius ``upsilon * R_min / (pi * sqrt(N))`` around their
        means overlap, distances being taken where the components' pooled covariance is the
        identity. "auto" chooses it by the silhouette of rows that did not train; where that does
        not tell, as under `cannot_link`, it takes the number of clusters that holds over the
        widest range.
    final_radius : float, sequence or dict, optional
        Asks for the paper's way and gives the final radii themselves, as distances: one for all
        components, or for each client a number or one for each of its components. Takes the
        place of `upsilon`.
    cannot_link : bool, default=True
        Whether two components of one client must stay in different clusters. Only the paper's
        way can do without; there it compares all pairs of components and takes at most 4096.
    scale : bool, default=False
        Whether to scale the features first, by their means and variances over all clients; in the
        paper's way also by their spread within the clients' own clusters, which identity
        covariances take to be one. Off here as everywhere in scikit-learn; the command line turns
        it on. Results are in the original units either way.
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
    n_clusters_interval_ : tuple of (int, int)
        Where that number lies in 90% of the draws when clients are drawn again with replacement.
        A shared mixture only.
    n_clusters_probabilities_ : dict of int to float
        The share of these draws that each number gets. A shared mixture only.
    n_clusters_scores_ : dict of str to array
        What the number was chosen from: "n_clusters" and "bic", as a log-likelihood, the larger
        the better. A shared mixture only.
    means_, covariances_ : arrays of shape (K, d) and (K, d, d)
        The clusters, the one with most rows first.
    weights_ : array of shape (G, K)
        Each client's share of each cluster, 0 where absent.
    memberships_ : array of bool of shape (G, K)
        Who has which cluster.
    labels_ : list of arrays, or array of shape (N,)
        The cluster of each row: one array for each client, or one in all where `fit` got one.
        Not there where rows are elsewhere: their labels stay with the clients.
    clients_ : tuple of str
        The names of the clients that answered, in the order of `weights_`.
    mixture_ : FittedMixture
        The shared mixture: each cluster's Gaussians, one or several, in the directions that rows
        vary in. A shared mixture only.
    components_ : Components
        The components of the clients themselves: in the paper's way those that became the
        clusters, in scaled units; otherwise those that each client found by itself, in the
        coordinates of ``mixture_.subspace``.
    component_labels_ : array of shape (C,)
        The cluster of each component.
    merge_tree_ : MergeTree
        The merges of all clients' components: the number of clusters against its cost, which is
        upsilon in the paper's way, and otherwise the log-likelihood lost, in nats.
    upsilon_ : float
        The upsilon used, also where it was chosen; 1 where `final_radius` was given. The paper's
        way only.
    upsilon_scores_ : dict of str to array
        What "auto" chose from: "upsilon", "n_clusters" and "silhouette".
    reliance_ : array of shape (G,)
        Only for a shared mixture: what the rows of other clients count at each client beside its
        own, from 0 to 1, learned from rows that it holds out. 1 is the shared mixture as it is.
    own_components_ : dict of str to Gaussians
        Only for a shared mixture: the components of clients that rely on others for less than 1.
    history_ : tuple of Round
        A row for each round: objective, number of clusters, bytes up and down, seconds.
        ``pandas.DataFrame(model.history_)`` makes a table of it.
    scale_ : array of shape (d,)
        What `scale` divided each feature by; ones without it.
    n_iter_ : int
        The number of rounds.
    converged_ : bool
        Whether training ended before `max_iter`; a shared mixture has no such end, and says True.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : array of shape (d,)
        Their names, where the input had any.

    Examples
    --------
    >>> import numpy as np
    >>> from fedgem import FedGEM
    >>> rng = np.random.default_rng(0)
    >>> a = rng.normal([[0.0, 0.0], [9.0, 0.0]] * 50)
    >>> b = rng.normal([[9.0, 0.0], [9.0, 9.0]] * 50)
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
        engine: Engine | None = None,
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
        FedGEM(cannot_link=False, covariance_type='identity', learn_weights=False,
               n_init=1, n_local_components=3, tol=0.0, upsilon=5.0)
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
        X: Any = None,
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
            `clients`. Nothing at all where the engine's clients are elsewhere and hold their rows
            themselves.
        y : ignored
        clients : array of shape (N,), optional
            With one array, the client of each row.
        checkpoint : path, optional
            A file to save to after every round. If it exists, training goes on from it, to the
            same result as if it had never stopped.
        callbacks : iterable of callables
            Called with each `Round` when it is over.
        """
        check_parameters(self.get_params(deep=False))
        engine = self.engine or LocalEngine()
        inputs = engine.inputs(X, clients)
        seed = int(check_random_state(self.random_state).randint(2**31))
        weights = component_weights(self.n_local_components, self.weights, inputs)
        if self.learn_weights:
            for name, own in weights.items():
                holds = bool(np.all(own > 0))
                require(f"Client {name!r}, weights", own, "none of zero to learn from", holds)
        radii = None if self.final_radius is None else final_radii(self.final_radius, weights)
        if self._is_papers and self.cannot_link:
            refuse_too_many_for_cannot_link(weights)
        saved: Training | Consensus | None = None
        if checkpoint is not None:
            parameters = {name: getattr(self, name) for name in ROUNDS_DEPEND_ON}
            if not is_whole(self.random_state):
                parameters["random_state"] = None
            # Which upsilon there is decides nothing before the rounds are over, but whether does.
            parameters["upsilon"] = "given" if self._is_papers else None
            belongs_to = checkpoints.fingerprint(inputs, weights, parameters)
            if Path(checkpoint).exists():
                seed, saved = checkpoints.resume(checkpoint, belongs_to)

        def on_round(state: Training | Consensus) -> None:
            if checkpoint is not None:
                checkpoints.save(checkpoint, belongs_to, seed, state)
            row = state.history[-1]
            if self.verbose:
                print(
                    f"round {row.round}: objective {row.objective:.6g}, "
                    f"{row.n_clusters} clusters, {row.seconds:.3f} s"
                )
            for callback in callbacks:
                callback(row)

        clients = {
            name: Client(
                name,
                rows,
                weights[name],
                seed,
                self.n_init,
                covariance_type=self.covariance_type,
                learn_weights=self.learn_weights,
            )
            for name, rows in inputs.rows.items()
        }
        shift: Array = np.zeros(next(iter(inputs.rows.values())).shape[1])
        scale: Array = np.ones_like(shift)
        if self.scale:
            shift, scale = common_scale(inputs.rows, engine)
            refuse_constant_columns(shift, scale, inputs.feature_names)
            if self._is_papers:
                scale = scale * within_scale(_scaled(clients, shift, scale), engine)
            clients = _scaled(clients, shift, scale)
        if self._is_papers:
            assert not isinstance(saved, Consensus)
            settings = Settings(
                self.max_iter,
                self.n_local_steps,
                self.tol,
                self.cannot_link,
                self.covariance_type,
                self.learn_weights,
            )
            found = fit_joined(
                clients,
                settings,
                upsilon=self.upsilon,
                radii=radii,
                engine=engine,
                seed=seed,
                saved=saved,
                on_round=on_round,
            )
            found["means_"] = found["means_"] * scale + shift
            # In float64 whatever the input: rounded, one might be a covariance no more.
            units = scale.astype(inputs.dtype if self.covariance_type == "identity" else float)
            squared = np.outer(units, units)
            found["covariances_"] = (found["covariances_"] * squared).astype(units.dtype)
        else:
            assert not isinstance(saved, Training)
            found = fit_shared(
                clients,
                self.covariance_type,
                self.max_iter,
                shift=shift,
                scale=scale,
                engine=engine,
                seed=seed,
                saved=saved,
                on_round=on_round,
            )
        for name in OF_ONE_WAY:
            if hasattr(self, name):
                delattr(self, name)
        for name, value in found.items():
            setattr(self, name, value)
        keep_features(self, inputs)
        self.scale_ = scale.astype(inputs.dtype)
        self._calibrate(inputs.rows, engine, seed)
        self.means_ = self.means_.astype(inputs.dtype)
        self._keep_labels(inputs)
        return self

    @property
    def _is_papers(self) -> bool:
        """Whether components are trained and joined by their uncertainty sets, as in the paper."""
        return self.upsilon is not None or self.final_radius is not None

    # What both ways to fit leave behind, and the mixture, which the paper's way does not.
    n_clusters_: int
    means_: Array
    covariances_: Array
    weights_: Array
    memberships_: BoolArray
    calibration_: Array
    components_: Components
    component_labels_: IntArray
    history_: tuple[Round, ...]
    mixture_: FittedMixture
    reliance_: Array
    own_components_: dict[str, Gaussians]

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
            rows,
            np.zeros(0),
            seed,
            self.n_init,
            covariance_type=self.covariance_type,
        ).seeing(shift=known.shift, scale=known.scale)
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
            labels = self._predict_rows(rows, name)
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
        self.reliance_ = np.append(self.reliance_, 1.0)
        if n_new:
            self.own_components_ = {
                other: extended(unfolded(replace(self.mixture_, components=own)), reply).components
                for other, own in self.own_components_.items()
            }
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
            whole(np.ones(n_features)),
            components,
            np.arange(n_clusters),
            np.ones(n_clusters),
        )

    def _calibrate(self, rows: Mapping[str, Rows], engine: Engine, seed: int) -> None:
        """Count how far the clients' rows lie from the clusters, which calibrates novelty."""
        mixture = self._mixture()
        clients = {
            name: Client(name, rows[name], np.ones(1), seed).seeing(
                shift=mixture.shift, scale=mixture.scale
            )
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
    def load(cls, path: str | os.PathLike[str] | IO[bytes]) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : path or open file
            The file.
        """
        content = storage.load(path, MODEL_FORMAT)
        model = cls(**content["params"])
        for name, value in content["fitted"].items():
            setattr(model, name, np.array(value, object) if name == "feature_names_in_" else value)
        return model

    def _log_weights(self, client: str | None) -> Array:
        if client is None:
            weights = self.components_.n_rows @ self.weights_ / self.components_.n_rows.sum()
        else:
            weights = self.weights_[self.clients_.index(str(client))]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(weights))

    def _block_joint(self, block: Array, client: str | None) -> Array:
        log_weights = self._log_weights(client)
        if not self._is_papers:
            own = self.own_components_.get(str(client), self.mixture_.components)
            mixture = replace(self.mixture_, components=own)
            return np.asarray(mixture.log_densities(block) + log_weights)
        return scaled_joint(
            block,
            log_weights,
            self.means_,
            self.covariances_,
            self.covariance_type,
            self.scale_,
        )

    def _joint(self, X: Any, client: str | None) -> Array:
        """Return log(pi_k p_k(x)) of every row and cluster."""
        rows = self._open(X, client)
        self._check_client(client)
        joint = np.concatenate([self._block_joint(block, client) for block in rows.blocks()])
        return np.asarray(joint - np.log(self.scale_).sum()) if self._is_papers else joint

    def _labels_of(self, block: Array, client: str | None) -> IntArray:
        return np.asarray(self._block_joint(block, client).argmax(axis=1))


def _scaled(clients: Mapping[str, Client], shift: Array, scale: Array) -> dict[str, Client]:
    return {name: client.seeing(shift=shift, scale=scale) for name, client in clients.items()}

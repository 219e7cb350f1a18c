"""One client's side of a round: from its private rows and a request to a reply."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, singledispatch
from typing import Any

import numpy as np
from sklearn.metrics import pairwise_distances, silhouette_score

from fedgem import enrolment, novelty
from fedgem.gaussian.covariances import CovarianceType, Gaussians, of_components
from fedgem.gaussian.density import log_joint, log_of
from fedgem.gaussian.estep import e_step, e_steps
from fedgem.gaussian.initialisation import (
    SAMPLE,
    start,
    within_covariance,
    within_variances,
)
from fedgem.gaussian.mixture import fit_any_number, fit_mixture
from fedgem.gaussian.mstep import Model, m_step, penalty
from fedgem.gaussian.statistics import Statistics, row_statistics
from fedgem.gaussian.subspace import resolution
from fedgem.messages import (
    EnrolReply,
    EnrolRequest,
    FitReply,
    FitRequest,
    Message,
    MomentsReply,
    MomentsRequest,
    NoveltyReply,
    NoveltyRequest,
    Profile,
    RelianceReply,
    RelianceRequest,
    ScoreReply,
    ScoreRequest,
    ShareReply,
    ShareRequest,
    TrainReply,
    TrainRequest,
    View,
)
from fedgem.reliance import best_reliance
from fedgem.rows import Rows, map_in_order
from fedgem.typing import Array, IntArray
from fedgem.uncertainty import squared_radii

# Silhouettes compare all pairs of rows; more rows than this change them by less than their noise.
SILHOUETTE_ROWS = 500
N_FOLDS = 3


@dataclass(frozen=True)
class Client:
    """What a client holds and keeps to itself.

    Attributes
    ----------
    name : str
        Its name in the federation.
    source : Rows
        Its private rows, as they are.
    weights : array of shape (K_g,)
        The weights of its components, fixed or to start from; their number is K_g. None at all
        where the client is to find out how many it has.
    seed : int
        Of the federation; together with the name it decides every random choice of the client.
    n_init : int
        How many starts it tries.
    covariance_type : {"identity", "spherical", "diag", "tied", "full"}
        The form of its components' covariances.
    learn_weights : bool
        Whether the weights are learned.
    reg_covar : float
        The floor of the covariance that others shrink towards, relative to the features' variances.
    view : View
        How it looks at its rows.
    """

    name: str
    source: Rows
    weights: Array
    seed: int
    n_init: int = 1
    covariance_type: CovarianceType = "identity"
    learn_weights: bool = False
    reg_covar: float = 1e-6
    view: View = field(default_factory=View)

    def seeing(self, **view: Any) -> Client:
        """Return the client with another view of its rows; what is not named stays as it is."""
        return replace(self, view=replace(self.view, **view))

    @cached_property
    def rows(self) -> Rows:
        """Its rows as it looks at them, without those of the fold that is held out."""
        rows = self._whole
        if self._fold_of is not None:
            rows = replace(rows, keep=self._fold_of != self.view.fold)
        if self.view.centre is not None and self.view.basis is not None:
            rows = rows.projected(self.view.centre, self.view.basis)
        return rows

    @property
    def held_out(self) -> Rows:
        """The rows that scores are computed on: those held out, or all where none are."""
        if self._fold_of is None:
            return self.rows
        return replace(self._whole, keep=self._fold_of == self.view.fold)

    @property
    def _whole(self) -> Rows:
        if self.view.shift is None or self.view.scale is None:
            return self.source
        return self.source.scaled(self.view.shift, self.view.scale)

    @cached_property
    def _fold_of(self) -> IntArray | None:
        """The fold of each row; none where all rows train, or are too few to be split.

        Every fold keeps at least as many rows as the client has components.
        """
        n_rows = self.source.shape[0]
        if self.view.fold is None or n_rows < N_FOLDS * (len(self.weights) + 1):
            return None
        return np.asarray(np.random.default_rng(self.seeds).permutation(n_rows) % N_FOLDS)

    @property
    def seeds(self) -> list[int]:
        """The seed and the name as numbers, for `numpy.random.default_rng`."""
        return [self.seed, *self.name.encode()]

    @cached_property
    def model(self) -> Model:
        """What it learns. A client that was restarted finds the same prior in the same rows."""
        if self.covariance_type == "identity":
            return Model(learn_weights=self.learn_weights)
        prior = within_covariance(
            self.rows,
            self.covariance_type,
            len(self.weights),
            self.n_init,
            self.seeds,
            self.reg_covar,
        )
        return Model(self.covariance_type, self.learn_weights, prior)

    @cached_property
    def once(self) -> Rows:
        """Its rows without copies, as long as each component can have one of them."""
        rows = self.rows.without_copies()
        return rows if rows.n_kept >= len(self.weights) else self.rows


@singledispatch
def respond(request: Message, client: Client, pool: Executor | None = None) -> Message:
    """Answer a request; the client's side of every protocol.

    Each kind of request has a function of its own, registered with ``respond.register``.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [2.0]]))
    >>> client = Client("plant-1", rows, weights=np.ones(1), seed=0)
    >>> respond(TrainRequest(1, 1, np.array([[5.0]])), client).statistics.means
    array([[1.]])
    """
    raise TypeError(f"A client has no answer to a {type(request).__name__}.")


@respond.register
def _train(request: TrainRequest, client: Client, pool: Executor | None = None) -> TrainReply:
    """Run S local EM steps (the client's part of Algorithm 1)."""
    model, own_start = client.model, request.means is None
    if request.means is None:
        components, weights = start(client.rows, client.weights, client.n_init, client.seeds, model)
    else:
        components = Gaussians(request.means, request.covariances, client.covariance_type)
        weights = client.weights if request.weights is None else request.weights
    statistics, log_likelihood = e_step(client.rows, components, log_of(weights), pool)
    objective = (log_likelihood + penalty(components, weights, model)) / client.rows.n_kept
    for _ in range(request.n_steps - 1):
        components, weights = m_step(statistics, model, weights)
        statistics, _ = e_step(client.rows, components, log_of(weights), pool)
    server_knows_previous = request.n_steps == 1 and not own_start
    return TrainReply(
        round=request.round,
        objective=objective,
        statistics=statistics,
        squared_radii=None
        if server_knows_previous
        else squared_radii(statistics.means, components),
        profile=Profile(client.rows.n_kept, client.weights, model.prior) if own_start else None,
        shapes=None if server_knows_previous else components.covariances,
    )


@respond.register
def _moments(request: MomentsRequest, client: Client, pool: Executor | None = None) -> MomentsReply:
    """Describe all rows as one component."""
    if request.within:
        return _moments_within(client)
    of_block = partial(row_statistics, full=request.full)
    blocks = map_in_order(of_block, client.rows.blocks(), pool)
    total = next(blocks)
    for statistics in blocks:
        total += statistics
    if not request.full:
        return MomentsReply(total)
    sample = client.rows.sample(SAMPLE, np.random.default_rng(client.seeds))
    return MomentsReply(total, resolution(sample.astype(np.float64)))


@respond.register
def _fit(request: FitRequest, client: Client, pool: Executor | None = None) -> FitReply:
    """Fit the client's own mixture."""
    args = client.covariance_type, request.floor, client.n_init, client.seeds, pool
    if len(client.weights):
        statistics, log_likelihood = fit_mixture(client.once, len(client.weights), *args)
    else:
        statistics, log_likelihood = fit_any_number(client.once, *args)
    n_rows = client.once.n_kept
    return FitReply(request.round, n_rows, log_likelihood / n_rows, statistics)


@respond.register
def _share(request: ShareRequest, client: Client, pool: Executor | None = None) -> ShareReply:
    """Run the E-step under shared mixtures."""
    mixtures = [
        (Gaussians(part.means, part.covariances, client.covariance_type), np.log(part.weights))
        for part in request.parts
    ]
    answers = e_steps(client.once, mixtures, pool, overlap=request.overlap)
    statistics, log_likelihoods = zip(*answers, strict=True)
    return ShareReply(
        request.round, client.once.n_kept, np.array(log_likelihoods), tuple(statistics)
    )


def _moments_within(client: Client) -> MomentsReply:
    """Describe how far the rows lie from the centres of the client's own clusters."""
    variances = within_variances(client.rows, len(client.weights), client.n_init, client.seeds)
    counts = np.array([float(client.rows.n_kept)])
    return MomentsReply(Statistics(counts, np.zeros((1, len(variances))), variances[None]))


@respond.register
def _rely(request: RelianceRequest, client: Client, pool: Executor | None = None) -> RelianceReply:
    """Find out what other clients' rows should count."""
    return RelianceReply(
        best_reliance(
            client.rows,
            request.part,
            request.others,
            request.floor,
            client.covariance_type,
            client.seeds,
            pool,
        )
    )


@respond.register
def _score(request: ScoreRequest, client: Client, pool: Executor | None = None) -> ScoreReply:
    """Score ways to merge the client's components by the silhouette of its held-out rows."""
    sample = client.held_out.sample(SILHOUETTE_ROWS, np.random.default_rng(client.seeds))
    components = of_components(request.means, request.covariances)
    weights = client.weights if request.weights is None else request.weights
    component = log_joint(sample, components, log_of(weights)).argmax(axis=1)
    distances = pairwise_distances(sample)
    scores = np.zeros(len(request.candidates))
    for m, clusters in enumerate(request.candidates):
        labels = clusters[component]
        # One cluster, or every row its own, has no silhouette and counts as the neutral 0.
        if 1 < len(np.unique(labels)) < len(labels):
            scores[m] = silhouette_score(distances, labels, metric="precomputed")
    return ScoreReply(client.held_out.n_kept, scores)


@respond.register
def _novelty(request: NoveltyRequest, client: Client, pool: Executor | None = None) -> NoveltyReply:
    """Count how far the rows lie from the clusters."""
    return novelty.answer(client.rows.blocks(), request)


@respond.register
def _enrol(request: EnrolRequest, client: Client, pool: Executor | None = None) -> EnrolReply:
    """Find the clusters of a newcomer."""
    args = client.covariance_type, client.n_init, client.seeds, pool
    return enrolment.answer(client.rows, request, *args)

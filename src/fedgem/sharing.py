"""The default way to fit: a mixture that all clients share, in the directions that rows vary in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedgem.client import Client
from fedgem.consensus import (
    Consensus,
    ConsensusSettings,
    interval,
    number_probabilities,
    side_by_side,
)
from fedgem.engines.engine import Engine
from fedgem.fitted import FittedMixture, fitted
from fedgem.gaussian.covariances import CovarianceType
from fedgem.gaussian.density import log_of
from fedgem.gaussian.mixture import weights_of
from fedgem.gaussian.subspace import Subspace, principal, units_of, whole
from fedgem.reliance import Reliance, with_components
from fedgem.scaling import Moments
from fedgem.server import Components
from fedgem.shared import local_weights, parts_for
from fedgem.typing import Array

# The least variance that a component has in any direction, relative to that of all rows.
REG_COVAR = 1e-6
# Of less than this a client has nothing: its rows, rounded.
HALF_A_ROW = 0.5


def fit_shared(
    clients: Mapping[str, Client],
    covariance_type: CovarianceType,
    max_iter: int,
    *,
    shift: Array,
    scale: Array,
    engine: Engine,
    seed: int,
    saved: Consensus | None,
    on_round: Callable[[Consensus], None],
) -> dict[str, Any]:
    """Fit the mixture and choose its number of clusters.

    Parameters
    ----------
    clients : dict of str to Client
        All clients, their rows scaled.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        The form of the components' covariances.
    max_iter : int
        The rounds for each mixture.
    shift, scale : arrays of shape (d,)
        What was taken off each feature, and what the rest was divided by.
    engine : engine
        What carries the messages.
    seed : int
        Draws who takes part.
    saved : Consensus, optional
        Where to go on.
    on_round : callable
        Called with the state after every round.

    Returns
    -------
    dict of str to object
        What `FedGEM` calls the fitted attributes.
    """
    subspace, floor = _subspace(clients, covariance_type, engine)
    n_local = np.array([len(client.weights) for client in clients.values()])  # 0 to be found
    start = saved or Consensus(
        tuple(clients),
        ConsensusSettings(max_iter, covariance_type, floor),
        np.zeros(len(clients), np.intp),
        n_local,
        guessed=not n_local.any(),
    )
    projected = {
        name: client.seeing(centre=subspace.centre, basis=subspace.basis)
        for name, client in clients.items()
    }
    done = engine.run(start, projected, seed=seed, on_round=on_round)
    found = _attributes(done, subspace, shift, scale)
    return found | _relied_on(done, projected, found["clients_"], found["mixture_"], engine, seed)


def _subspace(
    clients: Mapping[str, Client], covariance_type: CovarianceType, engine: Engine
) -> tuple[Subspace, Array]:
    """Return the subspace to fit in, and the variances that keep covariances sound there."""
    full = covariance_type in ("full", "tied")
    moments = engine.run(Moments(tuple(clients), full=True), clients)
    total, hidden = moments.total, moments.resolution
    assert total is not None
    assert total.covariances is not None
    assert hidden is not None
    subspace = principal(total) if full else whole(units_of(total.covariances[0]))
    variances = np.einsum("dr,de,er->r", subspace.basis, total.covariances[0], subspace.basis)
    floor = hidden @ np.square(subspace.basis) + REG_COVAR * variances
    return subspace, np.maximum(floor, REG_COVAR**2 * (variances.max() or 1.0))


def _relied_on(
    state: Consensus,
    clients: Mapping[str, Client],
    names: Sequence[str],
    mixture: FittedMixture,
    engine: Engine,
    seed: int,
) -> dict[str, Any]:
    """Let the clients find out what others' rows should count, and what that makes of theirs."""
    settings, shared = state.settings, state.result
    assert shared is not None
    weights = dict(zip(state.names, local_weights(shared, state.n_local), strict=True))
    covariance_type, floor = settings.covariance_type, settings.floor
    parts = parts_for(shared, np.stack([weights[n] for n in names]), covariance_type, floor)
    has = {name: np.flatnonzero(weights[name] > 0) for name in names}
    start = Reliance(
        dict(zip(names, parts, strict=True)), has, len(mixture.shares), covariance_type, floor
    )
    done = engine.run(start, {name: clients[name] for name in names}, seed=seed)
    own = {
        name: with_components(mixture.components, has[name], done.components_of(name))
        for name, reliance in done.reliances.items()
        if reliance < 1
    }
    reliances = np.array([done.reliances.get(name, 1.0) for name in names])
    return {"reliance_": reliances, "own_components_": own}


def _attributes(state: Consensus, subspace: Subspace, shift: Array, scale: Array) -> dict[str, Any]:
    """Return what was found, in the features' own units."""
    settings, shared = state.settings, state.result
    assert shared is not None
    assert state.tree is not None
    mixture, order, means, covariances = fitted(
        shared, settings.covariance_type, settings.floor, subspace, shift, scale
    )
    # A client that never answered is no part of the result.
    reached = np.array([name in state.own for name in state.names]) | (state.n_rows > 0)
    clients = tuple(np.array(state.names, object)[reached].tolist())
    by_part = local_weights(shared, state.n_local, HALF_A_ROW)[reached]
    weights = (by_part @ np.eye(len(order))[shared.cluster_of])[:, order]
    own = side_by_side(state.own, state)
    owners = np.cumsum(reached)[own.owners] - 1
    own_weights = np.concatenate([weights_of(some.counts) for some in state.own.values()])
    own_means = own.statistics.means
    densities = mixture.log_densities_at(own_means)
    numbers = sorted(state.best)
    probabilities = number_probabilities(state)
    return {
        "n_clusters_": len(order),
        "means_": means,
        "covariances_": covariances,
        "weights_": weights,
        "memberships_": weights > 0,
        "clients_": clients,
        "mixture_": mixture,
        "components_": Components(
            clients, owners, own_means, own_weights, own.counts, state.n_rows[reached], own.shapes
        ),
        "component_labels_": (densities + log_of(weights)[owners]).argmax(axis=1),
        "merge_tree_": state.tree,
        "n_clusters_scores_": {
            "n_clusters": np.array(numbers),
            "bic": np.array([state.score(state.best[k]) for k in numbers]),
        },
        "n_clusters_probabilities_": probabilities,
        "n_clusters_interval_": interval(probabilities),
        "history_": state.history,
        "n_iter_": len(state.history),
        "converged_": True,
    }

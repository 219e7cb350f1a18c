"""The paper's way to fit: components train together and join where their uncertainty sets meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedgem.client import Client
from fedgem.engines.engine import Engine
from fedgem.gaussian.covariances import CovarianceType, Gaussians
from fedgem.gaussian.density import log_joint
from fedgem.server import Components, Settings, Training, aggregate
from fedgem.superclusters import MergeTree
from fedgem.tuning import Scoring, choose_upsilon
from fedgem.typing import Array


def fit_joined(
    clients: Mapping[str, Client],
    settings: Settings,
    *,
    upsilon: float | str | None,
    radii: Mapping[str, Array] | None,
    engine: Engine,
    seed: int,
    saved: Training | None,
    on_round: Callable[[Training], None],
) -> dict[str, Any]:
    """Run Algorithm 1 and the final aggregation.

    Parameters
    ----------
    clients : dict of str to Client
        All clients.
    settings : Settings
        How to train.
    upsilon : float, "auto" or None
        How far the final aggregation reaches; not asked for where there are radii.
    radii : dict of str to array, optional
        The final radii of each client's components.
    engine : engine
        What carries the messages.
    seed : int
        Draws who takes part.
    saved : Training, optional
        Where to go on.
    on_round : callable
        Called with the state after every round.

    Returns
    -------
    dict of str to object
        What `FedGEM` calls the fitted attributes, in units of the clients' rows.
    """
    start = saved or Training(tuple(clients), settings, last=settings.max_iter == 0)
    training = engine.run(start, clients, seed=seed, on_round=on_round)
    components = Components.of(training)
    squared_radii = None
    if radii is not None:
        squared_radii = np.square(np.concatenate([radii[name] for name in components.names]))
    tree = components.merge_tree(squared_radii, cannot_link=settings.cannot_link)
    chosen: dict[str, Any] = {"upsilon_": 1.0}
    if squared_radii is None:
        if upsilon == "auto":
            chosen = _choose_upsilon(clients, settings, components, tree, engine, seed)
        else:
            assert upsilon is not None
            chosen = {"upsilon_": float(upsilon)}
    clusters = aggregate(components, tree.cut(chosen["upsilon_"]))
    n_clusters, n_features = clusters.means.shape
    covariances = clusters.covariances
    if covariances is None:
        covariances = np.tile(np.eye(n_features), (n_clusters, 1, 1))
    return chosen | {
        "n_clusters_": n_clusters,
        "means_": clusters.means,
        "covariances_": covariances,
        "weights_": clusters.weights,
        "memberships_": clusters.weights > 0,
        "clients_": components.names,
        "components_": components,
        "component_labels_": clusters.of_components,
        "merge_tree_": tree,
        "history_": training.history,
        "n_iter_": len(training.history),
        "converged_": len(training.history) <= settings.max_iter,
    }


def _choose_upsilon(
    clients: Mapping[str, Client],
    settings: Settings,
    components: Components,
    tree: MergeTree,
    engine: Engine,
    seed: int,
) -> dict[str, Any]:
    """Choose upsilon, and keep what it was chosen from."""

    def train(folded: Mapping[str, Client]) -> Components:
        start = Training(tuple(folded), settings, last=settings.max_iter == 0)
        return Components.of(engine.run(start, folded, seed=seed))

    def run(scoring: Scoring, folded: Mapping[str, Client]) -> Scoring:
        return engine.run(scoring, folded, seed=seed)

    reached = {name: clients[name] for name in components.names}
    sizes = np.bincount(components.owners)
    upsilon, candidates, silhouettes = choose_upsilon(
        reached, tree, sizes, train, run, cannot_link=settings.cannot_link
    )
    scores = {
        "upsilon": candidates,
        "n_clusters": np.array([tree.cut(u).max() + 1 for u in candidates]),
        "silhouette": silhouettes,
    }
    return {"upsilon_": upsilon, "upsilon_scores_": scores}


def scaled_joint(
    X: Array,
    log_weights: Array,
    means: Array,
    covariances: Array,
    covariance_type: CovarianceType,
    scale: Array,
) -> Array:
    """Return log(pi_k p_k(x)) of rows and clusters, p_k being a density of scaled rows.

    Parameters
    ----------
    X : array of shape (N, d)
        Rows.
    log_weights : array of shape (K,)
        The logarithms of the clusters' weights.
    means, covariances : arrays of shape (K, d) and (K, d, d)
        The clusters, in the rows' units.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        The form of the covariances of scaled rows.
    scale : array of shape (d,)
        What scaling divides by.
    """
    X, means = X / scale, means / scale
    if covariance_type == "identity":
        return log_joint(X, Gaussians(means), log_weights)
    if covariance_type in ("diag", "spherical"):
        variances = np.diagonal(covariances, axis1=1, axis2=2) / np.square(scale)
        return log_joint(X, Gaussians(means, variances, "diag"), log_weights)
    return log_joint(X, Gaussians(means, covariances / np.outer(scale, scale), "full"), log_weights)

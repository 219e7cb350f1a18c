"""Choosing upsilon: the paper's silhouette cross-validation on top of the merge tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedgem.client import N_FOLDS, Client
from fedgem.messages import Message, ScoreRequest
from fedgem.server import Components
from fedgem.superclusters import MergeTree
from fedgem.typing import Array, IntArray

# "K-hat does not significantly exceed sqrt(sum K_g)" (the paper's guide): by this factor.
SIGNIFICANTLY = 1.5


@dataclass(frozen=True)
class Scoring:
    """One exchange that scores ways to merge all clients' components.

    Attributes
    ----------
    components : Components
        All components.
    candidates : array of shape (M, C)
        The cluster of each component under each of M ways to merge.
    scores : array of shape (M,), optional
        The answer: each way's silhouette, the mean over clients weighted by their rows.
    round : int
        The round that comes next.
    """

    components: Components
    candidates: IntArray
    scores: Array | None = None
    round: int = 0

    @property
    def answer(self) -> Array:
        """The scores, once they are in."""
        assert self.scores is not None
        return self.scores

    def requests(self) -> dict[str, Message]:
        """Ask every client once, about its own components alone."""
        if self.scores is not None:
            return {}
        all_ = self.components
        own = [all_.owners == g for g in range(len(all_.names))]
        return {
            name: ScoreRequest(
                all_.means[mine],
                self.candidates[:, mine],
                None if all_.covariances is None else all_.covariances[mine],
                all_.weights[mine],
            )
            for name, mine in zip(all_.names, own, strict=True)
        }

    def advance(self, replies: Mapping[str, Any], seconds: float = 0.0) -> Scoring:
        """Average over the clients that answered."""
        sizes = np.array([reply.n_rows for reply in replies.values()])
        every = np.array([reply.scores for reply in replies.values()])
        scores = np.average(every, axis=0, weights=sizes)
        return replace(self, scores=scores, round=1)


def candidate_costs(tree: MergeTree, sizes: IntArray) -> tuple[Array, Array]:
    """Return one cost to cut the tree at for every number of clusters worth considering.

    Parameters
    ----------
    tree : MergeTree
        Over all components.
    sizes : array of shape (G,)
        The number of components K_g of each client.

    Returns
    -------
    costs : array of shape (M,)
        Midpoints between the costs at which the number of clusters changes, from max K_g
        clusters (no client has two components of one cluster) to 1.5 times the paper's guide
        sqrt(sum K_g). The guide takes for granted that there are more clients than clusters;
        where there are few, up to 2 max K_g clusters are considered.
    widths : array of shape (M,)
        Over what range the number of clusters stays the same: the ratio of the next change's
        cost to the last one's. It is 1 where there is no last or no next change to compare.

    Examples
    --------
    >>> from fedgem.superclusters import merge_tree
    >>> tree = merge_tree(np.array([[0.0], [1.0], [5.0]]), np.ones(3), np.array([0, 1, 2]))
    >>> costs, widths = candidate_costs(tree, np.array([1, 1, 1]))
    >>> tree.cut(costs[0]), widths
    (array([0, 0, 1]), array([16.,  1.]))
    """
    most = max(SIGNIFICANTLY * np.sqrt(sizes.sum()), 2 * sizes.max())
    steps = np.concatenate([[0.0], tree.costs])  # n_clusters[i] holds from steps[i] on
    n_clusters = tree.n_clusters
    # Merges at one cost happen together; a number of clusters inside such a run never occurs.
    real = np.append(steps[1:] > steps[:-1], True)
    finite = np.isfinite(steps)  # an infinite cost is one that nobody pays
    wanted = real & finite & (n_clusters <= most) & (n_clusters >= sizes.max())
    if not wanted.any():  # the tree ends above the guide: its end is the closest there is
        wanted = np.arange(len(steps)) == finite.sum() - 1
    end = tree.next_cost if np.isfinite(tree.next_cost) else steps[-1]
    # The merge that is forbidden at the end may be cheaper than those made before it.
    upper = np.maximum(np.append(steps[1:], end), steps)
    known = (steps > 0) & np.isfinite(upper)
    middles = np.where(np.isfinite(upper), 0.5 * steps + 0.5 * upper, steps)
    middles[known] = np.sqrt(steps[known]) * np.sqrt(upper[known])
    middles = np.maximum(middles, steps)  # whatever rounding made of them
    widths = np.divide(upper, steps, out=np.ones_like(steps), where=known)
    return middles[wanted], widths[wanted]


def choose_upsilon(
    clients: Mapping[str, Client],
    tree: MergeTree,
    sizes: IntArray,
    train: Callable[[Mapping[str, Client]], Components],
    run: Callable[[Scoring, Mapping[str, Client]], Scoring],
    *,
    cannot_link: bool,
) -> tuple[float, Array, Array]:
    """Choose the upsilon whose clusters have the best silhouette on rows that did not train.

    Equal silhouettes leave the choice to the number of clusters that holds over the widest
    range of upsilon.

    Parameters
    ----------
    clients : dict of str to Client
        All clients.
    tree : MergeTree
        Over the components that all rows trained.
    sizes : array of shape (G,)
        The number of components of each client.
    train : callable
        Trains on some clients' rows and returns the components.
    run : callable
        Runs a scoring on the clients.
    cannot_link : bool
        As in the merge tree.

    Returns
    -------
    upsilon : float
        The choice.
    candidates, scores : arrays of shape (M,)
        What it was chosen from.
    """
    upsilons, widths = candidate_costs(tree, sizes)
    if len(upsilons) == 1:
        return float(upsilons[0]), upsilons, np.zeros(1)
    scores = np.zeros(len(upsilons))
    for fold in range(N_FOLDS):
        folded = {name: client.seeing(fold=fold) for name, client in clients.items()}
        components = train(folded)
        fold_tree = components.merge_tree(None, cannot_link=cannot_link)
        candidates = np.array([fold_tree.cut(upsilon) for upsilon in upsilons])
        scores += run(Scoring(components, candidates), folded).answer / N_FOLDS
    # Under cannot_link no merge changes any client's labels, and all silhouettes are the same.
    ties = np.flatnonzero(scores >= scores.max() - 1e-12)
    best = ties[widths[ties].argmax()]
    return float(upsilons[best]), upsilons, scores

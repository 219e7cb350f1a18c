"""Super-clusters: which components of different clients are the same thing.

Two components of different clients are joined when their uncertainty sets overlap. A pair of one
client is never compared (the paper's g' in [G] minus g), but both may end up in one super-cluster
through a component of another client, unless `cannot_link` forbids it.

Everything here goes through one k-d tree (appendix B.5 of the paper) whose nodes carry the
largest radius below them. Against all pairs in NumPy it is ahead from 300 components on (ten
times at 3,000), and below that both take less than a millisecond; where uncertainty sets cover
much of the space, so that most pairs overlap, the two draw level. Its memory stays proportional
to the number of components. `benchmarks/core.py` measures it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from fedgem.disjoint_set import find, join, labels_of
from fedgem.ellipsoids import add_steps, bounding_balls, contacts, meetings
from fedgem.kdtree import boruvka, build, pairs_within_reach
from fedgem.typing import Array, BoolArray, IntArray

# Whoever wants the whole curve under cannot_link pays for all pairs; this many take 2 seconds.
MOST_CANNOT_LINK = 4096


@njit(cache=True, nogil=True)
def _meeting_share(distance, own_radius, other_radius):  # type: ignore[no-untyped-def]
    """Return clip(1/2, 1 - r'/w, r/w): how far towards the other centre nu* lies."""
    if distance == 0.0:
        return 0.0
    return min(max(0.5, 1.0 - other_radius / distance), own_radius / distance)


@njit(cache=True, nogil=True)
def _meet(means, radii, i, p, sums, sizes):  # type: ignore[no-untyped-def]
    """Add nu* of an overlapping pair to the sets T of both its components."""
    squared = 0.0
    for j in range(means.shape[1]):
        squared += (means[p, j] - means[i, j]) ** 2
    share = _meeting_share(np.sqrt(squared), radii[i], radii[p])
    for j in range(means.shape[1]):
        step = share * (means[p, j] - means[i, j])  # the printed sign points the other way
        sums[i, j] += step
        sums[p, j] += means[i, j] + step - means[p, j]
    sizes[i] += 1
    sizes[p] += 1


@njit(cache=True, nogil=True)
def _meet_all_overlapping(means, radii, owners, tree, sums, sizes):  # type: ignore[no-untyped-def]
    """Visit every overlapping pair once; return the super-clusters."""
    parent = np.arange(len(means))
    for i, p in pairs_within_reach(means, radii, owners, tree):
        _meet(means, radii, i, p, sums, sizes)
        join(parent, i, p)
    for i in range(len(means)):
        parent[i] = find(parent, i)
    return parent


@njit(cache=True, nogil=True)
def _meet_listed(means, radii, first, second, sums, sizes):  # type: ignore[no-untyped-def]
    """Visit the listed pairs."""
    for e in range(len(first)):
        _meet(means, radii, first[e], second[e], sums, sizes)


@njit(cache=True, nogil=True)
def _overlapping_pairs(means, radii, owners, tree):  # type: ignore[no-untyped-def]
    """Return the overlapping pairs and their distances in units of both radii."""
    n = 0
    for _ in pairs_within_reach(means, radii, owners, tree):
        n += 1
    first, second, length = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    for n, (i, p) in enumerate(pairs_within_reach(means, radii, owners, tree)):
        distance = np.sqrt(np.square(means[i] - means[p]).sum())
        first[n], second[n] = i, p
        length[n] = distance / (radii[i] + radii[p]) if distance > 0.0 else 0.0
    return first, second, length


@njit(cache=True, nogil=True)
def join_unless_siblings_meet(first, second, owners, n_owners):  # type: ignore[no-untyped-def]
    """Join the pairs in order where that puts no two components of one client together.

    Returns a code for each pair: 2 joined it, 1 found it joined, 0 refused it.
    """
    n = len(owners)
    parent = np.arange(n)
    holds = np.zeros((n, n_owners), np.bool_)
    for i in range(n):
        holds[i, owners[i]] = True
    outcome = np.zeros(len(first), np.int8)
    for e in range(len(first)):
        a, b = find(parent, first[e]), find(parent, second[e])
        if a == b:
            outcome[e] = 1
            continue
        if np.any(holds[a] & holds[b]):
            continue
        join(parent, a, b)
        holds[min(a, b)] |= holds[max(a, b)]
        outcome[e] = 2
    return outcome


def update(
    means: Array,
    squared_radii: Array,
    owners: IntArray,
    covariances: Array | None = None,
    *,
    cannot_link: bool = False,
) -> tuple[Array, IntArray]:
    """Run the server's update of a round (the paper's Algorithm 2).

    Parameters
    ----------
    means : array of shape (C, d)
        The maximisers that the clients report.
    squared_radii : array of shape (C,)
        The squared radii of their uncertainty sets.
    owners : array of shape (C,)
        The client of each component, numbered from 0.
    covariances : array of shape (C, d, d), (C, d) or (C,), optional
        The metrics that the radii are measured in, which make the uncertainty sets ellipsoids or,
        with one variance for each component, balls.
    cannot_link : bool
        Whether components of one client must stay in different super-clusters. Pairs then count
        closest first, and a pair that would break the rule counts as not overlapping.

    Returns
    -------
    means : array of shape (C, d)
        Every component's new mean: the mean of its set T, which lies in its uncertainty set.
    labels : array of shape (C,)
        The super-cluster of each component.

    Examples
    --------
    >>> import numpy as np
    >>> means, labels = update(
    ...     np.array([[0.0], [2.0], [9.0]]), np.array([1.0, 1.0, 1.0]), np.array([0, 1, 1])
    ... )
    >>> means.ravel(), labels  # T of the first two is {own mean, nu* = 1}
    (array([0.5, 1.5, 9. ]), array([0, 0, 1]))
    """
    means = np.ascontiguousarray(means, dtype=np.float64)
    radii = np.sqrt(squared_radii)
    # T holds differences from the component's own mean, the first of which is zero.
    sums, sizes = np.zeros_like(means), np.ones(len(means))
    if covariances is not None and covariances.ndim > 1:
        covariances = np.ascontiguousarray(covariances, dtype=np.float64)
        balls, reaches = bounding_balls(means, covariances, radii)
        first, second, _ = _overlapping_pairs(balls, reaches, owners, build(balls, reaches))
        t = meetings(means, covariances, radii, first, second)
        first, second, t = first[t >= 0], second[t >= 0], t[t >= 0]
        if cannot_link:
            length = contacts(means, covariances, radii, first, second)
            chosen = _closest_without_siblings(first, second, length, owners)
            first, second, t = first[chosen], second[chosen], t[chosen]
        add_steps(means, covariances, first, second, t, sums, sizes)
        return means + sums / sizes[:, None], labels_of(len(means), first, second)
    if covariances is not None:
        radii = radii * np.sqrt(covariances)
    tree = build(means, radii)
    if cannot_link:
        first, second, length = _overlapping_pairs(means, radii, owners, tree)
        chosen = _closest_without_siblings(first, second, length, owners)
        first, second = first[chosen], second[chosen]
        _meet_listed(means, radii, first, second, sums, sizes)
        labels = labels_of(len(means), first, second)
    else:
        parent = _meet_all_overlapping(means, radii, owners, tree, sums, sizes)
        labels = np.unique(parent, return_inverse=True)[1].astype(np.intp)
    return means + sums / sizes[:, None], labels


def _closest_without_siblings(
    first: IntArray, second: IntArray, length: Array, owners: IntArray
) -> IntArray:
    """Return which pairs count when no two components of one client may meet, closest first."""
    order = np.lexsort((second, first, length))
    joined = join_unless_siblings_meet(first[order], second[order], owners, owners.max() + 1)
    return np.asarray(order[joined > 0])


@dataclass(frozen=True)
class MergeTree:
    """The whole path from every component for itself to as few clusters as can be.

    Attributes
    ----------
    first, second : arrays of shape (M,)
        The components whose clusters each merge joins, in the order of the merges.
    costs : array of shape (M,)
        What each merge costs; in the paper's preset, the upsilon from which on it happens.
        Sorted where overlaps cause the merges, but not where `merge_components` does.
    n_components : int
        How many components there are.
    next_cost : float
        Where the path ends because `cannot_link` forbids the rest: what the next merge would
        cost if it were allowed. Infinite otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> tree = merge_tree(np.array([[0.0], [1.0], [5.0]]), np.ones(3), np.array([0, 1, 2]))
    >>> tree.costs
    array([0.25, 4.  ])
    >>> tree.n_clusters
    array([3, 2, 1])
    >>> tree.cut(1.0)
    array([0, 0, 1])
    >>> tree.labels(1)
    array([0, 0, 0])
    """

    first: IntArray
    second: IntArray
    costs: Array
    n_components: int
    next_cost: float = np.inf

    @property
    def n_clusters(self) -> IntArray:
        """The number of clusters before any merge, after the first, after the second, ..."""
        return np.arange(self.n_components, self.n_components - len(self.costs) - 1, -1)

    def cut(self, cost: float) -> IntArray:
        """Return each component's cluster when every merge up to this cost is made.

        That needs costs in ascending order; `labels` does not.
        """
        n_merges = int(np.searchsorted(self.costs, cost, side="right"))
        return self.labels(self.n_components - n_merges)

    def labels(self, n_clusters: int) -> IntArray:
        """Return each component's cluster when merging stops at so many clusters."""
        n_merges = self.n_components - n_clusters
        if not 0 <= n_merges <= len(self.costs):
            raise ValueError(
                f"Found n_clusters = {n_clusters}, expected a number from "
                f"{self.n_clusters[-1]} to {self.n_components}."
            )
        return labels_of(self.n_components, self.first[:n_merges], self.second[:n_merges])


def merge_tree(
    means: Array, squared_scales: Array, owners: IntArray, *, cannot_link: bool = False
) -> MergeTree:
    """Return the super-clusters of the final aggregation (Algorithm 3) for every radius at once.

    With final squared radii ``upsilon * squared_scales`` two components overlap when
    ``upsilon >= (d_ij / (sqrt(a_i) + sqrt(a_j)))**2``, a the scales. The minimum spanning tree
    over these values gives the super-clusters at every upsilon: single linkage with a scale for
    each component.

    Parameters
    ----------
    means : array of shape (C, d)
        The components' means.
    squared_scales : array of shape (C,)
        The final squared radii at upsilon = 1.
    owners : array of shape (C,)
        The client of each component, numbered from 0.
    cannot_link : bool
        Whether components of one client must stay in different clusters.

    Returns
    -------
    MergeTree
    """
    means = np.ascontiguousarray(means, dtype=np.float64)
    scales = np.sqrt(squared_scales)
    if cannot_link:
        if len(means) > MOST_CANNOT_LINK:
            raise ValueError(
                f"cannot_link compares all pairs of components: found {len(means)} components, "
                f"expected at most {MOST_CANNOT_LINK}."
            )
        i, p = np.triu_indices(len(means), 1)
        apart = owners[i] != owners[p]
        i, p = i[apart], p[apart]
        length = scaled_distances(means, scales, i, p)
        order = np.lexsort((p, i, length))
        i, p, length = i[order], p[order], length[order]
        outcome = join_unless_siblings_meet(i, p, owners, owners.max() + 1)
        next_cost = np.square(length[_apart(len(means), i, p, outcome == 2)].min(initial=np.inf))
        i, p, length = i[outcome == 2], p[outcome == 2], length[outcome == 2]
    else:
        next_cost = np.inf
        i, p, length = boruvka(means, scales, owners, build(means, scales))
        order = np.lexsort((p, i, length))
        i, p, length = i[order], p[order], length[order]
    first, second = i.astype(np.intp), p.astype(np.intp)
    return MergeTree(first, second, np.square(length), len(means), float(next_cost))


def _apart(n: int, i: IntArray, p: IntArray, merged: BoolArray) -> BoolArray:
    """Tell which pairs are still in different clusters after the merges."""
    labels = labels_of(n, i[merged], p[merged])
    return np.asarray(labels[i] != labels[p])


def scaled_distances(means: Array, scales: Array, i: IntArray, p: IntArray) -> Array:
    """Return d_ij / (s_i + s_j) for each pair, 0 where the means coincide."""
    distance = np.sqrt(np.square(means[i] - means[p]).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(distance > 0, distance / (scales[i] + scales[p]), 0.0)


def heuristic_radii(means: Array, weights: Array, owners: IntArray, n_rows: IntArray) -> Array:
    """Return the paper's final squared radii at upsilon = 1: R_min / (pi sqrt(N)).

    Parameters
    ----------
    means : array of shape (C, d)
        The components' means.
    weights : array of shape (C,)
        Each component's weight at its client.
    owners : array of shape (C,)
        The client of each component, numbered from 0.
    n_rows : array of shape (G,)
        Each client's number of rows.

    Returns
    -------
    array of shape (C,)
        A client with one component has no R_min of its own and takes the clients' median; where
        no client has two, there is no scale to go by and the radii are zero.

    Examples
    --------
    >>> import numpy as np
    >>> heuristic_radii(
    ...     np.array([[0.0], [3.0]]), np.array([0.5, 0.5]), np.array([0, 0]), np.array([36])
    ... )
    array([1., 1.])
    """
    smallest = np.full(len(n_rows), np.nan)  # R_min of each client
    for g in range(len(n_rows)):
        own = means[owners == g]
        if len(own) > 1:
            i, p = np.triu_indices(len(own), 1)
            smallest[g] = np.sqrt(np.square(own[i] - own[p]).sum(axis=1).min())
    known = smallest[~np.isnan(smallest)]
    smallest[np.isnan(smallest)] = np.median(known) if known.size else 0.0
    with np.errstate(divide="ignore"):
        radii = smallest[owners] / (weights * np.sqrt(n_rows[owners]))
    return np.where(weights > 0, radii, 0.0)

"""A k-d tree of weighted points, and the minimum spanning tree over it.

The distance between two components here is d_ij / (s_i + s_j): how far apart they are in units
of both their scales. No metric tree of a library takes that, so this one keeps the largest scale
below every node, which turns the distance to a node's box into a lower bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fedgem.disjoint_set import find, join
from fedgem.typing import Array, IntArray

LEAF = 16


class Tree(NamedTuple):
    """A k-d tree; node `v` covers the points `order[starts[v]:stops[v]]`.

    Its children are the nodes `child[v]` and `child[v] + 1`; a leaf has 0 there. Of the points
    below a node, `lower` and `upper` are the corners of their box, `centres` and `reaches` a ball
    around them, and `largest` their largest scale.
    """

    order: IntArray
    starts: IntArray
    stops: IntArray
    child: IntArray
    lower: Array
    upper: Array
    centres: Array
    reaches: Array
    largest: Array


@njit(cache=True, nogil=True)
def build(points, scales):  # type: ignore[no-untyped-def]
    """Halve the boxes of the points at the middle of their widest feature, down to `LEAF` points.

    Halving space instead of the number of points keeps a cluster in one node and out of its
    neighbours' boxes, which is what the searches live on. Below depth 48, where space has been
    halved to no avail, the number of points is halved instead.
    """
    n, d = points.shape
    order = np.arange(n)
    starts = np.zeros(2 * n, np.int64)
    stops = np.zeros(2 * n, np.int64)
    child = np.zeros(2 * n, np.int64)
    depth = np.zeros(2 * n, np.int64)
    lower = np.full((2 * n, d), np.inf)
    upper = np.full((2 * n, d), -np.inf)
    centres = np.zeros((2 * n, d))
    reaches = np.zeros(2 * n)
    largest = np.zeros(2 * n)
    stops[0] = n
    n_nodes = 1
    v = 0
    while v < n_nodes:
        start, stop = starts[v], stops[v]
        for p in order[start:stop]:
            largest[v] = max(largest[v], scales[p])
            for j in range(d):
                lower[v, j] = min(lower[v, j], points[p, j])
                upper[v, j] = max(upper[v, j], points[p, j])
        for p in order[start:stop]:
            centres[v] += points[p] / (stop - start)
        for p in order[start:stop]:
            reaches[v] = max(reaches[v], np.sqrt(np.square(points[p] - centres[v]).sum()))
        widest = np.argmax(upper[v] - lower[v])
        if stop - start > LEAF and upper[v, widest] > lower[v, widest]:
            members = order[start:stop].copy()
            values = points[members, widest]
            if depth[v] < 48:
                low = values <= 0.5 * (lower[v, widest] + upper[v, widest])
            else:
                low = np.zeros(len(members), np.bool_)
                low[np.argsort(values)[: len(members) // 2]] = True
            middle = start + low.sum()
            order[start:middle] = members[low]
            order[middle:stop] = members[~low]
            child[v] = n_nodes
            starts[n_nodes], stops[n_nodes], depth[n_nodes] = start, middle, depth[v] + 1
            starts[n_nodes + 1], stops[n_nodes + 1] = middle, stop
            depth[n_nodes + 1] = depth[v] + 1
            n_nodes += 2
        v += 1
    nodes = slice(0, n_nodes)
    return Tree(
        order,
        starts[nodes],
        stops[nodes],
        child[nodes],
        lower[nodes],
        upper[nodes],
        centres[nodes],
        reaches[nodes],
        largest[nodes],
    )


@njit(cache=True, nogil=True)
def _scaled(squared_distance, scale):  # type: ignore[no-untyped-def]
    """Return d / s, where no distance is 0 and a distance without a scale is infinite."""
    if squared_distance == 0.0:
        return 0.0
    return np.sqrt(squared_distance) / scale if scale > 0.0 else np.inf


@njit(cache=True, nogil=True)
def _gap(tree, a, b):  # type: ignore[no-untyped-def]
    """Return a lower bound on the scaled distance between what two nodes hold."""
    between_boxes = 0.0
    between_centres = 0.0
    for j in range(tree.lower.shape[1]):
        gap = max(tree.lower[a, j] - tree.upper[b, j], tree.lower[b, j] - tree.upper[a, j], 0.0)
        between_boxes += gap * gap
        between_centres += (tree.centres[a, j] - tree.centres[b, j]) ** 2
    # The slack keeps rounding from making a lower bound of something larger.
    apart = np.sqrt(between_centres) - (1 + 1e-12) * (tree.reaches[a] + tree.reaches[b])
    return _scaled(max(between_boxes, max(apart, 0.0) ** 2), tree.largest[a] + tree.largest[b])


@njit(nogil=True)  # callers cache it with themselves; Numba cannot reload a generator alone
def pairs_within_reach(points, scales, owners, tree):  # type: ignore[no-untyped-def]
    """Iterate over the pairs of different owners that are no farther apart than both scales."""
    stack = np.empty((512, 2), np.int64)
    stack[0] = 0
    n_stack = 1
    while n_stack > 0:
        n_stack -= 1
        a, b = stack[n_stack]
        if _gap(tree, a, b) > 1.0:
            continue
        if tree.child[a] == 0 and tree.child[b] == 0:
            for at in range(tree.starts[a], tree.stops[a]):
                i = tree.order[at]
                for p in tree.order[at + 1 if a == b else tree.starts[b] : tree.stops[b]]:
                    squared = 0.0
                    for j in range(points.shape[1]):
                        squared += (points[p, j] - points[i, j]) ** 2
                    if owners[i] != owners[p] and np.sqrt(squared) <= scales[i] + scales[p]:
                        yield i, p
        elif a == b:
            left, right = tree.child[a], tree.child[a] + 1
            stack[n_stack, 0], stack[n_stack, 1] = left, left
            stack[n_stack + 1, 0], stack[n_stack + 1, 1] = left, right
            stack[n_stack + 2, 0], stack[n_stack + 2, 1] = right, right
            n_stack += 3
        else:
            if tree.child[a] == 0 or (tree.child[b] > 0 and _size(tree, b) > _size(tree, a)):
                a, b = b, a
            for half in range(2):
                stack[n_stack, 0], stack[n_stack, 1] = tree.child[a] + half, b
                n_stack += 1


@njit(cache=True, nogil=True)
def _size(tree, v):  # type: ignore[no-untyped-def]
    """Return how many points a node covers."""
    return tree.stops[v] - tree.starts[v]


@njit(cache=True, nogil=True)
def _sets_of_nodes(label, tree):  # type: ignore[no-untyped-def]
    """Return the set that all points below each node belong to, or -1 where they differ."""
    n_nodes = len(tree.child)
    of_node = np.empty(n_nodes, np.int64)
    for v in range(n_nodes - 1, -1, -1):
        if tree.child[v] > 0:
            left, right = of_node[tree.child[v]], of_node[tree.child[v] + 1]
            of_node[v] = left if left == right else -1
        else:
            of_node[v] = label[tree.order[tree.starts[v]]]
            for p in tree.order[tree.starts[v] : tree.stops[v]]:
                if label[p] != of_node[v]:
                    of_node[v] = -1
    return of_node


@njit(cache=True, nogil=True)
def _compare_leaves(points, scales, owners, label, mine, others, best, best_from, best_to):  # type: ignore[no-untyped-def]
    """Let the points of one leaf look for their set's shortest edge among those of another."""
    for i in mine:
        own = label[i]
        for p in others:
            if label[p] == own or owners[p] == owners[i]:
                continue
            squared = 0.0
            for j in range(points.shape[1]):
                squared += (points[p, j] - points[i, j]) ** 2
            distance = _scaled(squared, scales[i] + scales[p])
            if distance < best[own]:
                best[own] = distance
                best_from[own] = i
                best_to[own] = p


@njit(cache=True, nogil=True)
def boruvka(points, scales, owners, tree):  # type: ignore[no-untyped-def]
    """Return the edges of the minimum spanning forest over points of different owners.

    Boruvka's algorithm on two copies of the tree (March, Ram and Gray, 2010): in every round
    each set takes its shortest edge to another set. A pair of nodes is skipped when both lie in
    one set, or when nothing between them can be shorter than what their set has already.
    """
    n = len(points)
    n_nodes = len(tree.child)
    above = np.full(n_nodes, -1)
    for v in range(n_nodes):
        if tree.child[v] > 0:
            above[tree.child[v]] = above[tree.child[v] + 1] = v
    parent = np.arange(n)
    first = np.empty(n - 1, np.int64)
    second = np.empty(n - 1, np.int64)
    length = np.empty(n - 1)
    n_edges = 0
    label = np.arange(n)
    best = np.empty(n)
    best_from = np.empty(n, np.int64)
    best_to = np.empty(n, np.int64)
    stack = np.empty((256, 2), np.int64)
    gaps = np.empty(256)
    joined = True
    while joined and n_edges < n - 1:
        for i in range(n):
            label[i] = find(parent, i)
        of_node = _sets_of_nodes(label, tree)
        best[:] = np.inf
        best_from[:] = -1
        for v in range(n_nodes):
            # Search from the largest nodes that lie in one set, and from leaves that do not.
            whole = of_node[v] >= 0 and (v == 0 or of_node[above[v]] < 0)
            if not whole and not (of_node[v] < 0 and tree.child[v] == 0):
                continue
            stack[0, 0], stack[0, 1], gaps[0] = v, 0, 0.0
            n_stack = 1
            while n_stack > 0:
                n_stack -= 1
                a, b = stack[n_stack]
                if of_node[a] >= 0:
                    if of_node[a] == of_node[b]:
                        continue
                    bound = best[of_node[a]]
                else:
                    bound = 0.0
                    for i in tree.order[tree.starts[a] : tree.stops[a]]:
                        bound = max(bound, best[label[i]])
                if gaps[n_stack] >= bound:
                    continue
                if tree.child[a] == 0 and tree.child[b] == 0:
                    mine, others = (
                        tree.order[tree.starts[a] : tree.stops[a]],
                        tree.order[tree.starts[b] : tree.stops[b]],
                    )
                    _compare_leaves(
                        points, scales, owners, label, mine, others, best, best_from, best_to
                    )
                    continue
                if tree.child[a] == 0 or (tree.child[b] > 0 and _size(tree, b) > _size(tree, a)):
                    near_a, near_b, far_a, far_b = a, tree.child[b], a, tree.child[b] + 1
                else:
                    near_a, near_b, far_a, far_b = tree.child[a], b, tree.child[a] + 1, b
                near = _gap(tree, near_a, near_b)
                far = _gap(tree, far_a, far_b)
                if far < near:
                    near_a, near_b, far_a, far_b = far_a, far_b, near_a, near_b
                    near, far = far, near
                stack[n_stack, 0], stack[n_stack, 1], gaps[n_stack] = far_a, far_b, far
                n_stack += 1
                stack[n_stack, 0], stack[n_stack, 1], gaps[n_stack] = near_a, near_b, near
                n_stack += 1
        joined = False
        for own in range(n):
            if best_from[own] >= 0 and join(parent, best_from[own], best_to[own]):
                first[n_edges], second[n_edges] = best_from[own], best_to[own]
                length[n_edges] = best[own]
                n_edges += 1
                joined = True
    return first[:n_edges], second[:n_edges], length[:n_edges]

"""The compiled search for the cheapest pair of components; see `merging`."""

import heapq
import math
from typing import NamedTuple

import numpy as np
from numba import njit

from fedgem.kdtree import build
from fedgem.merging_costs import LANES, bench, compare, fill_logs
from fedgem.typing import Array, IntArray


class Index(NamedTuple):
    """A k-d tree (`kdtree.Tree`) over live components, kept up to date while they merge.

    `rows[starts[v]:stops[v]]` are the rows below node `v`, -1 where one has died. The merged
    component takes the place of the larger of its two, and the nodes above it grow to hold it.
    """

    rows: IntArray
    places: IntArray
    leaves: IntArray
    above: IntArray
    starts: IntArray
    stops: IntArray
    child: IntArray
    lower: Array
    upper: Array
    centres: Array
    reaches: Array
    widest: Array
    fewest: Array
    n_alive: IntArray


@njit(cache=True, nogil=True)
def index_of(components):  # type: ignore[no-untyped-def]
    """Return the k-d tree over the components that are alive."""
    alive = np.flatnonzero(components.ages >= 0)
    tree = build(components.means[alive], components.widths[alive])
    n_nodes = len(tree.child)
    rows = alive[tree.order]
    places = np.full(len(components.ages), -1)
    leaves = np.full(len(components.ages), -1)
    above = np.full(n_nodes, -1)
    fewest = np.empty(n_nodes)
    for v in range(n_nodes):
        fewest[v] = components.counts[rows[tree.starts[v] : tree.stops[v]]].min()
        if tree.child[v] > 0:
            above[tree.child[v]] = above[tree.child[v] + 1] = v
        else:
            for place in range(tree.starts[v], tree.stops[v]):
                places[rows[place]] = place
                leaves[rows[place]] = v
    return Index(
        rows,
        places,
        leaves,
        above,
        tree.starts,
        tree.stops,
        tree.child,
        tree.lower,
        tree.upper,
        tree.centres,
        tree.reaches,
        tree.largest,
        fewest,
        tree.stops - tree.starts,
    )


@njit(cache=True, nogil=True)
def _least_cost(own, other, squared, size_free):  # type: ignore[no-untyped-def]
    """Return a lower bound on the cost from two counts and a squared distance of the means.

    The distance is in units of the widest that either component is. The slack is for rounding.
    """
    total = own + other
    part = own * other / total**2
    least = total * (0.5 * (1 - 1e-9) * math.log(1.0 + part * squared) - 1e-12)
    return least / (part * total) if size_free else least


@njit(cache=True, nogil=True)
def _least_below(i, v, components, index, size_free):  # type: ignore[no-untyped-def]
    """Return a lower bound on what merging `i` with anything below node `v` costs."""
    if index.n_alive[v] == 0:
        return np.inf
    to_box = 0.0
    to_centre = 0.0
    for k in range(components.means.shape[1]):
        x = components.means[i, k]
        gap = max(index.lower[v, k] - x, x - index.upper[v, k], 0.0)
        to_box += gap * gap
        to_centre += (x - index.centres[v, k]) ** 2
    to_ball = max(math.sqrt(to_centre) - (1 + 1e-12) * index.reaches[v], 0.0)
    squared = max(to_box, to_ball**2) / max(components.widths[i], index.widest[v])
    own = components.counts[i]
    # The bound grows with the other count; made free of size, it is least for equal counts.
    return _least_cost(own, own if size_free else index.fewest[v], squared, size_free)


@njit(cache=True, nogil=True)
def _least_with(i, j, components, size_free):  # type: ignore[no-untyped-def]
    """Return a lower bound on what merging `i` and `j` costs."""
    squared = 0.0
    for k in range(components.means.shape[1]):
        squared += (components.means[i, k] - components.means[j, k]) ** 2
    own, other = components.counts[i], components.counts[j]
    width = (own * components.widths[i] + other * components.widths[j]) / (own + other)
    return _least_cost(own, other, squared / width, size_free)


@njit(cache=True, nogil=True)
def _cheapest(n, best, components, size_free, work):  # type: ignore[no-untyped-def]
    """Return the cheapest of the first `n` pairs on the bench, if it beats the best so far."""
    for lane in range(n, LANES):
        work.first[lane], work.second[lane] = work.first[0], work.second[0]
    compare(best[0], components, size_free, work)
    for lane in range(n):
        found = (work.costs[lane], work.first[lane], work.second[lane])
        if found < best:
            best = found
    return best


@njit(cache=True, nogil=True)
def cheapest_pair(i, components, index, size_free, work):  # type: ignore[no-untyped-def]
    """Return the cheapest merge of `i` with an older component: its cost and both rows.

    Of merges that cost the same, the one with the lowest rows; without any, the cost is infinite.
    """
    best = (np.inf, np.int64(-1), np.int64(-1))
    n = 0
    stack = np.empty(256, np.int64)
    least = np.empty(256)
    stack[0], least[0] = 0, 0.0
    n_stack = 1
    while n_stack > 0:
        n_stack -= 1
        v = stack[n_stack]
        if least[n_stack] > best[0]:
            continue
        if index.child[v] > 0:
            near, far = index.child[v], index.child[v] + 1
            to_near = _least_below(i, near, components, index, size_free)
            to_far = _least_below(i, far, components, index, size_free)
            if to_far < to_near:
                near, far, to_near, to_far = far, near, to_far, to_near
            stack[n_stack], least[n_stack] = far, to_far
            stack[n_stack + 1], least[n_stack + 1] = near, to_near
            n_stack += 2
            continue
        for j in index.rows[index.starts[v] : index.stops[v]]:
            if j < 0 or components.ages[j] >= components.ages[i]:
                continue
            if _least_with(i, j, components, size_free) > best[0]:
                continue
            work.first[n], work.second[n] = min(i, j), max(i, j)
            n += 1
            if n == LANES:
                best = _cheapest(n, best, components, size_free, work)
                n = 0
    return _cheapest(n, best, components, size_free, work) if n > 0 else best


@njit(cache=True, nogil=True)
def cheapest_pairs(rows, components, index, size_free, costs, first, second):  # type: ignore[no-untyped-def]
    """Fill in the cheapest merge of each of these rows with an older component."""
    work = bench(components.means.shape[1])
    for i in rows:
        costs[i], first[i], second[i] = cheapest_pair(i, components, index, size_free, work)


@njit(cache=True, nogil=True)
def _merge(i, j, age, components, index):  # type: ignore[no-untyped-def]
    """Put what becomes of `i` and `j` in the row `i`, which is the lower one."""
    counts, means, packed = components.counts, components.means, components.packed
    n_features = means.shape[1]
    share = counts[j] / (counts[i] + counts[j])
    step = means[j] - means[i]
    sums = np.zeros(n_features)  # of the rows' absolute values, which bound the eigenvalues
    f = 0
    for r in range(n_features):
        for k in range(r + 1):
            within = packed[i, f] + share * (packed[j, f] - packed[i, f])
            packed[i, f] = within + share * (1.0 - share) * step[r] * step[k]
            sums[r] += abs(packed[i, f])
            if k < r:
                sums[k] += abs(packed[i, f])
            f += 1
    kept, dropped = (i, j) if counts[i] >= counts[j] else (j, i)
    v = index.leaves[dropped]
    while v >= 0:
        index.n_alive[v] -= 1
        v = index.above[v]
    index.rows[index.places[dropped]] = -1
    index.rows[index.places[kept]] = i
    index.places[i], index.leaves[i] = index.places[kept], index.leaves[kept]
    means[i] += share * step
    counts[i] += counts[j]
    components.widths[i] = sums.max()
    components.ages[i] = age
    components.ages[j] = -1
    v = index.leaves[i]
    while v >= 0:
        from_centre = 0.0
        for k in range(n_features):
            index.lower[v, k] = min(index.lower[v, k], means[i, k])
            index.upper[v, k] = max(index.upper[v, k], means[i, k])
            from_centre += (means[i, k] - index.centres[v, k]) ** 2
        index.reaches[v] = max(index.reaches[v], math.sqrt(from_centre))
        index.widest[v] = max(index.widest[v], components.widths[i])
        v = index.above[v]


@njit(cache=True, nogil=True)
def merge_greedily(components, index, size_free, n_merges, costs, first, second):  # type: ignore[no-untyped-def]
    """Merge the cheapest pair again and again; return the pairs' rows and their costs.

    `costs`, `first` and `second` are every component's cheapest merge with an older one. Each
    pair is looked after by the younger of its two. When the older one is gone, the cost that is
    kept is still a lower bound on the others, so a new search waits until it is the lowest.
    """
    ages = components.ages
    work = bench(components.means.shape[1])
    n_alive = n_indexed = len(ages)
    merged = np.empty((n_merges, 2), np.int64)
    merged_costs = np.empty(n_merges)
    heap = [
        (costs[i], first[i], second[i], ages[first[i]], ages[second[i]])
        for i in range(len(ages))
        if first[i] >= 0
    ]
    heapq.heapify(heap)
    n = 0
    while n < n_merges:
        cost, i, j, age_i, age_j = heapq.heappop(heap)
        if ages[i] == age_i and ages[j] == age_j:
            merged[n, 0], merged[n, 1], merged_costs[n] = i, j, cost
            _merge(i, j, len(ages) + n, components, index)
            fill_logs(components, i, i + 1)
            n += 1
            n_alive -= 1
            younger = i
            if 2 * n_alive < n_indexed:
                index = index_of(components)
                n_indexed = n_alive
        else:
            younger = i if age_i > age_j else j
            if ages[younger] != max(age_i, age_j):
                continue
        cost, i, j = cheapest_pair(younger, components, index, size_free, work)
        if i >= 0:
            heapq.heappush(heap, (cost, i, j, ages[i], ages[j]))
    return merged, merged_costs

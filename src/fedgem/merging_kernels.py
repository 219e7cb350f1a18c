"""The compiled search for the cheapest pair of components; see `merging`.

What merging a pair costs is gathered from the pivots of its common covariance, row by row of the
factorisation. The leading rows alone give the cost of merging the components as they look in the
leading features, which is never more than the whole: so a pair is dropped at the first row where
it costs more than the best pair found before.
"""

import heapq
import math
from typing import NamedTuple

import numpy as np
from numba import njit

from fedgem.kdtree import build
from fedgem.typing import Array, IntArray

LANES = 32  # pairs that are factorised side by side
STEP = 4  # features per inner step, and rows between two looks at the cost
FASTMATH = {"contract"}  # sums keep their order, so that a pair costs the same in every lane


class Components(NamedTuple):
    """Components by row; what becomes of two goes to the lower row, and the other row is dead.

    `packed` holds the covariances' lower triangles, `logs` the logarithms of their determinants
    in shares of `STEP` pivots, `widths` upper bounds on their eigenvalues. A row's age says which
    state of it is meant: components start as 0..C-1 and every merge is one younger; dead is -1.
    """

    counts: Array
    means: Array
    packed: Array
    logs: Array
    widths: Array
    ages: IntArray


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


class Bench(NamedTuple):
    """Room for the factorisation of `LANES` pairs."""

    first: IntArray
    second: IntArray
    costs: Array
    shares: Array
    between: Array
    steps: Array
    row: Array
    solved: Array
    factor: Array
    inverses: Array
    product: Array
    logs: Array


@njit(cache=True, nogil=True)
def bench(n_features):  # type: ignore[no-untyped-def]
    """Return room for the factorisation of `LANES` pairs."""
    n_padded = -(-n_features // STEP) * STEP
    return Bench(
        np.zeros(LANES, np.int64),
        np.zeros(LANES, np.int64),
        np.zeros(LANES),
        np.zeros(LANES),
        np.zeros(LANES),
        np.zeros((n_features, LANES)),
        np.zeros((n_features, LANES)),
        np.zeros((n_padded, LANES)),
        np.zeros((n_features, n_padded, LANES)),
        np.zeros((n_features, LANES)),
        np.zeros(LANES),
        np.zeros((n_padded // STEP, LANES)),
    )


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _load(r, components, work):  # type: ignore[no-untyped-def]
    """Write row `r` of the pairs' common covariances: what is within both, and between them."""
    offset = r * (r + 1) // 2
    for lane in range(LANES):
        own = components.packed[work.first[lane], offset : offset + r + 1]
        other = components.packed[work.second[lane], offset : offset + r + 1]
        share = work.shares[lane]
        between = work.between[lane] * work.steps[r, lane]
        for k in range(r + 1):
            within = own[k] + share * (other[k] - own[k])
            work.row[k, lane] = within + between * work.steps[k, lane]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _subtract_products(k, solved, factor, row):  # type: ignore[no-untyped-def]
    """Subtract from `row[k]` its products with the features before it."""
    for m in range(0, k, STEP):
        for lane in range(LANES):
            value = row[k, lane]
            for step in range(STEP):
                value -= solved[m + step, lane] * factor[m + step, lane]
            row[k, lane] = value


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _eliminate(r, work):  # type: ignore[no-untyped-def]
    """Factorise row `r` into L D L'; return its pivot in `work.row[r]`."""
    row, solved, factor, inverses = work.row, work.solved, work.factor, work.inverses
    solved[: min(r + STEP, len(solved))] = 0.0
    for k in range(r):
        _subtract_products(k, solved, factor[k], row)
        for lane in range(LANES):
            solved[k, lane] = row[k, lane]
    for k in range(r):
        for lane in range(LANES):
            factor[r, k, lane] = solved[k, lane] * inverses[k, lane]
    _subtract_products(r, solved, factor[r], row)
    for lane in range(LANES):
        inverses[r, lane] = 1.0 / row[r, lane]
        work.product[lane] *= row[r, lane]


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _compare(limit, components, size_free, work):  # type: ignore[no-untyped-def]
    """Write what merging `work.first` and `work.second` costs; above the limit, less may do."""
    counts, means, logs = components.counts, components.means, components.logs
    n_features = means.shape[1]
    for lane in range(LANES):
        i, j = work.first[lane], work.second[lane]
        share = counts[j] / (counts[i] + counts[j])
        work.shares[lane] = share
        work.between[lane] = share * (1.0 - share)
        work.costs[lane] = 0.0
        work.product[lane] = 1.0
        for k in range(n_features):
            work.steps[k, lane] = means[j, k] - means[i, k]
    for r in range(n_features):
        _load(r, components, work)
        _eliminate(r, work)
        if r % STEP < STEP - 1 and r < n_features - 1:
            continue
        part = r // STEP
        cheapest = np.inf
        for lane in range(LANES):
            i, j = work.first[lane], work.second[lane]
            log = math.log(max(work.product[lane], 1e-300))
            lost = 0.5 * (counts[i] * (log - logs[i, part]) + counts[j] * (log - logs[j, part]))
            if size_free:
                lost *= 1.0 / counts[i] + 1.0 / counts[j]
            work.costs[lane] += max(lost, 0.0)  # every share is a divergence; the rest is rounding
            work.logs[part, lane] = log
            work.product[lane] = 1.0
            cheapest = min(cheapest, work.costs[lane])
        if cheapest > limit:
            return


@njit(cache=True, nogil=True)
def fill_logs(components, start, stop):  # type: ignore[no-untyped-def]
    """Fill in the components' `logs`; return one that is not positive definite, or -1."""
    work = bench(components.means.shape[1])
    for i in range(start, stop, LANES):
        for lane in range(LANES):
            work.first[lane] = work.second[lane] = min(i + lane, stop - 1)
        _compare(np.inf, components, False, work)
        for lane in range(min(LANES, stop - i)):
            if not np.all(work.inverses[:, lane] > 0.0):
                return i + lane
            components.logs[i + lane] = work.logs[:, lane]
    return -1


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
    _compare(best[0], components, size_free, work)
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


@njit(cache=True, nogil=True, fastmath=FASTMATH)
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

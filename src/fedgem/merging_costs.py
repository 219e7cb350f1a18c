"""What merging pairs of components costs, compiled; see `merging`.

The cost is gathered from the pivots of the common covariance, row by row of the factorisation.
The leading rows alone give the cost of merging the components as they look in the leading
features, which is never more than the whole: so pairs are dropped at the first row where all
that stand on the bench cost more than the best pair found before.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from fedgem.typing import Array, IntArray

LANES = 32  # pairs that are factorised side by side
STEP = 4  # features per inner step, and rows between two looks at the cost


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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _subtract_products(k, solved, factor, row):  # type: ignore[no-untyped-def]
    """Subtract from `row[k]` its products with the features before it."""
    for m in range(0, k, STEP):
        for lane in range(LANES):
            value = row[k, lane]
            for step in range(STEP):
                value -= solved[m + step, lane] * factor[m + step, lane]
            row[k, lane] = value


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def compare(limit, components, size_free, work):  # type: ignore[no-untyped-def]
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
        compare(np.inf, components, False, work)
        for lane in range(min(LANES, stop - i)):
            if not np.all(work.inverses[:, lane] > 0.0):
                return i + lane
            components.logs[i + lane] = work.logs[:, lane]
    return -1

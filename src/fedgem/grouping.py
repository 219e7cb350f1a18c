"""Which shared components are parts of one cluster.

Two things tell. Parts of one cluster *touch*: rows between them are shared, so that the sum of
the products of their responsibilities, O_ab, is large. And they *go together*: whoever has the
cluster has both, in the same proportion, while two clusters are found independently of each
other. With n_ga rows of client g in component a, the likelihood ratio for "the same proportion
everywhere" (half the G statistic of the table clients x {a, b}) is

    L_ab = sum_g [n_ga log(n_ga / n_ga+b) + n_gb log(n_gb / n_ga+b)]
           - N_a log(N_a / N_a+b) - N_b log(N_b / N_a+b),

zero if the proportions are equal at all clients. Both are sums over clients of additive
statistics. No row of any client is needed, and no client's own view suffices: it takes several
clients to see what goes together.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedgem.typing import Array, IntArray


def apart(local_counts: Array) -> Array:
    """Return L_ab for each two components, infinite on the diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> apart(np.array([[10.0, 10.0, 0.0], [20.0, 20.0, 9.0]])).round(1)[0]
    array([inf, 0. , 3.1])
    """
    n = local_counts + 1e-9
    both, total = n[:, :, None] + n[:, None, :], n.sum(axis=0)
    per_client = n[:, :, None] * np.log(n[:, :, None] / both)
    separate = (per_client + per_client.transpose(0, 2, 1)).sum(axis=0)
    shared = total[:, None] * np.log(total[:, None] / (total[:, None] + total))
    ratio = separate - shared - shared.T
    np.fill_diagonal(ratio, np.inf)
    return np.asarray(ratio)


def groupings(
    local_counts: Array, overlap: Array, fewest: int, by: Literal["all", "row", "touch"]
) -> dict[int, IntArray]:
    """Group components greedily, two at a time.

    Parameters
    ----------
    local_counts : array of shape (G, M)
        How many rows of each client each component answers for.
    overlap : array of shape (M, M)
        The sums of the products of responsibilities.
    fewest : int
        How many clusters to end with.
    by : {"all", "row", "touch"}
        What the cheapest pair is: that of the smallest L_ab; of the smallest L_ab / h, h being
        the smaller one's rows; or of the smallest ``(m - 1) L_ab / h - log(O_ab / h)``, m being
        the number of clients that have either: what a row of every further client says against
        the pair, and what the rows between the two say for it.

    Returns
    -------
    dict of int to array of shape (M,)
        For each number of clusters, the cluster of each component.

    Examples
    --------
    >>> import numpy as np
    >>> local_counts = np.array([[10.0, 10.0, 0.0], [20.0, 20.0, 9.0]])
    >>> groupings(local_counts, np.eye(3), 2, "all")[2]
    array([0, 0, 1])
    """
    counts, overlap = local_counts.copy(), overlap.copy()
    names = np.arange(counts.shape[1])
    labels = names.copy()
    found = {len(names): labels.copy()}
    while len(names) > fewest:
        cost = apart(counts)
        smaller = np.minimum.outer(counts.sum(axis=0), counts.sum(axis=0)) + 1e-9
        if by == "row":
            cost = cost / smaller
        if by == "touch":
            has = counts > 0.5
            holders = (has[:, :, None] | has[:, None, :]).sum(axis=0)
            shared = np.maximum(overlap / smaller, 1e-12)
            np.fill_diagonal(cost, 0.0)
            cost = np.maximum(holders - 1, 0) * cost / smaller - np.log(shared)
            np.fill_diagonal(cost, np.inf)
        i, j = sorted(np.unravel_index(int(np.argmin(cost)), cost.shape))
        labels[labels == names[j]] = names[i]
        counts[:, i] += counts[:, j]
        overlap[i] += overlap[j]
        overlap[:, i] += overlap[:, j]
        keep = np.arange(len(names)) != j
        counts, overlap, names = counts[:, keep], overlap[np.ix_(keep, keep)], names[keep]
        found[len(names)] = np.unique(labels, return_inverse=True)[1].astype(np.intp)
    return found


def n_told_apart(local_counts: Array, n_rows: IntArray) -> int:
    """Return how many groups of components the clients' counts tell apart.

    The components that go together best are joined as long as the BIC has it so: another
    proportion at each of G clients takes G - 1 parameters more than the same one everywhere.

    Parameters
    ----------
    local_counts
        As in `groupings`.
    n_rows : array of shape (G,)
        How many rows each client has.

    Examples
    --------
    >>> import numpy as np
    >>> local_counts = np.array([[30.0, 30.0, 0.0], [20.0, 20.0, 9.0], [9.0, 11.0, 40.0]])
    >>> n_told_apart(local_counts, local_counts.sum(axis=1).astype(int))
    2
    """
    price = 0.5 * max(len(n_rows) - 1, 1) * np.log(np.maximum(n_rows, 1)).mean()
    counts = local_counts.copy()
    while counts.shape[1] > 1:
        cost, has = apart(counts), counts > 0.5
        holders = (has[:, :, None] | has[:, None, :]).sum(axis=0)
        cost[holders < min(2, len(n_rows))] = np.inf  # what one client has, it alone can judge
        i, j = sorted(np.unravel_index(int(np.argmin(cost)), cost.shape))
        if cost[i, j] > price:
            break
        counts[:, i] += counts[:, j]
        counts = np.delete(counts, j, axis=1)
    return len(counts.T)

"""Merging Gaussian components greedily, the pair first that loses the least likelihood.

Describing two components by one Gaussian costs

    c = 1/2 [(n_i + n_j) log|S_ij| - n_i log|S_i| - n_j log|S_j|]

of log-likelihood, S_ij the covariance of both together. It is the sum of both components'
divergences from their common Gaussian, so no invertible map changes it and no projection raises
it. The search lives on both: features are rotated so that those come first in which components
differ most, and a pair that is too dear in these is not looked at further. A k-d tree spares it
most pairs altogether, since log|.| is concave and therefore

    c >= N/2 log(1 + h/N |m_i - m_j|^2 / w),    N = n_i + n_j,  h = n_i n_j / N,

w the largest eigenvalue of both covariances. There is never a matrix of all pairs.
`benchmarks/merging.py` measures it.
"""

from __future__ import annotations

from concurrent.futures import Executor

import numpy as np

from fedgem.gaussian.covariances import not_positive_definite
from fedgem.merging_costs import STEP, Components, fill_logs
from fedgem.merging_kernels import cheapest_pairs, index_of, merge_greedily
from fedgem.rows import map_in_order
from fedgem.superclusters import MergeTree
from fedgem.typing import Array, IntArray

CHUNK = 1024  # components per task; also how many covariances are mapped at a time


def merge_components(
    counts: Array,
    means: Array,
    covariances: Array,
    n_clusters: int = 1,
    *,
    size_free: bool = False,
    pool: Executor | None = None,
) -> MergeTree:
    """Merge components greedily, cheapest pair first.

    Parameters
    ----------
    counts : array of shape (C,)
        How many rows each component answers for, more than none.
    means : array of shape (C, d)
        The components' means.
    covariances : array of shape (C, d, d)
        Their covariances, positive definite.
    n_clusters : int
        How many clusters to end with.
    size_free : bool
        Whether to divide the cost of a merge by n_i n_j / (n_i + n_j), so that it does not grow
        with the counts.
    pool : Executor, optional
        Threads for the first search of all components; the result does not depend on it.

    Returns
    -------
    MergeTree
        The merges in the order in which they are made; their costs need not be sorted. A cluster
        goes by its first component. Pairs that cost the same are merged in order of their names.

    Examples
    --------
    >>> import numpy as np
    >>> means = np.array([[0.0], [2.0], [9.0]])
    >>> tree = merge_components(np.full(3, 10.0), means, np.ones((3, 1, 1)))
    >>> tree.first, tree.second, tree.costs.round(2)
    (array([0, 0]), array([1, 2]), array([ 6.93, 34.55]))
    >>> tree.labels(2)
    array([0, 0, 1])
    """
    n = len(counts)
    if n_clusters < 1:
        raise ValueError(f"Found n_clusters = {n_clusters}, expected at least 1.")
    if not np.all(counts > 0):
        k = int(np.argmin(counts > 0))
        raise ValueError(f"Component {k} has a count of {counts[k]}, expected more than 0.")
    n_merges = max(n - n_clusters, 0)
    components = _components(counts, means, covariances)
    k = fill_logs(components, 0, n)
    if k >= 0:
        raise not_positive_definite(k)
    costs, first, second = np.full(n, np.inf), np.full(n, -1), np.full(n, -1)
    index = index_of(components)
    parts = np.array_split(index.rows.copy(), -(-n // CHUNK) if n > CHUNK else 2)

    def search(rows: IntArray) -> None:
        cheapest_pairs(rows, components, index, size_free, costs, first, second)

    for _ in map_in_order(search, parts, pool):
        pass
    pairs, merged_costs = merge_greedily(
        components, index, size_free, n_merges, costs, first, second
    )
    return MergeTree(pairs[:, 0], pairs[:, 1], merged_costs, n)


def _components(counts: Array, means: Array, covariances: Array) -> Components:
    """Map components to where they are 1 wide on average and differ most in the first features."""
    n, d = means.shape
    shares = counts / counts.sum()
    centred = means - shares @ means
    try:
        whiten = np.linalg.inv(np.linalg.cholesky(np.tensordot(shares, covariances, 1)))
    except np.linalg.LinAlgError:  # one of them is to blame, and `fill_logs` says which
        whiten = np.eye(d)
    y = whiten @ centred.T
    into = np.linalg.eigh((y * shares) @ y.T)[1][:, ::-1].T @ whiten
    rows, columns = np.tril_indices(d)
    packed, widths = np.empty((n, len(rows))), np.empty(n)
    for start in range(0, n, CHUNK):
        part = slice(start, start + CHUNK)
        mapped = into @ covariances[part] @ into.T
        packed[part] = mapped[:, rows, columns]
        widths[part] = np.abs(mapped).sum(axis=2).max(axis=1)
    # The younger of two looks after the pair. Small components are cheap for all and soon gone:
    # as the youngest, they look for larger ones, and few lose what they have found.
    ages = np.empty(n, np.int64)
    ages[np.argsort(-counts, kind="stable")] = np.arange(n)
    logs = np.zeros((n, -(-d // STEP)))
    # Unlike a product of matrices, einsum maps equal means to equal means.
    mapped_means = np.ascontiguousarray(np.einsum("jk,nk->nj", into, centred))
    return Components(np.array(counts, float), mapped_means, packed, logs, widths, ages)

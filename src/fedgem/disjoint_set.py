"""Disjoint sets: which components have been joined so far."""

from __future__ import annotations

import numpy as np
from numba import njit

from fedgem.typing import IntArray


@njit(cache=True)
def find(parent, i):  # type: ignore[no-untyped-def]
    """Return the representative of the set that holds `i`, halving the path to it."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@njit(cache=True)
def join(parent, i, j):  # type: ignore[no-untyped-def]
    """Join two sets under the smaller representative; return whether they were apart."""
    a, b = find(parent, i), find(parent, j)
    if a == b:
        return False
    parent[max(a, b)] = min(a, b)
    return True


@njit(cache=True)
def join_all(n, first, second):  # type: ignore[no-untyped-def]
    """Join all the given pairs of 0..n-1 and return every member's representative."""
    parent = np.arange(n)
    for p in range(len(first)):
        join(parent, first[p], second[p])
    for i in range(n):
        parent[i] = find(parent, i)
    return parent


def labels_of(n: int, first: IntArray, second: IntArray) -> IntArray:
    """Return a set number for each of 0..n-1 after joining the pairs, in order of appearance.

    Examples
    --------
    >>> import numpy as np
    >>> labels_of(4, np.array([3]), np.array([1]))
    array([0, 1, 2, 1])
    """
    return np.unique(join_all(n, first, second), return_inverse=True)[1].astype(np.intp)

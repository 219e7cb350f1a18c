"""A client's rows, read block by block, wherever they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedgem.errors import InputError
from fedgem.typing import Array, BoolArray

# Small enough for a core's cache to matter, large enough for Python not to. The bounds of the
# blocks depend on nothing but the shape, so that every source and any number of threads adds
# the same numbers in the same order.
BLOCK_BYTES = 2**21
# A client's rows that have been computed once are kept where they make no more blocks than this.
FEW_BLOCKS = 16
# How often fewer distinct rows than this occur may well have a common divisor by chance.
FEW_DISTINCT = 10

T = TypeVar("T")
U = TypeVar("U")


def _elsewhere() -> Iterator[Array]:
    raise InputError("Found rows that stay with their client, expected rows in this process.")


def block_length(n_features: int) -> int:
    """Return how many rows of so many features make a block."""
    return max(1, BLOCK_BYTES // (8 * max(1, n_features)))


@dataclass(frozen=True)
class Rows:
    """The private rows of one client.

    Parameters
    ----------
    shape : tuple of int
        Rows and features.
    dtype : numpy dtype
        Of the values, float32 or float64.
    read : callable
        Returns an iterator over the rows in blocks of `block_length` rows; only the last may be
        shorter.
    shift, scale : arrays of shape (d,), optional
        What is taken off, and what the rest is divided by, as each block is read.
    keep : array of bool, optional
        Which rows count; all of them by default.
    """

    shape: tuple[int, int]
    dtype: np.dtype[np.floating[Any]]
    read: Callable[[], Iterator[Array]]
    shift: Array | None = None
    scale: Array | None = None
    keep: BoolArray | None = None

    @classmethod
    def from_array(cls, X: Array) -> Rows:
        """Wrap an array, in memory or memory-mapped."""
        length = block_length(X.shape[1])
        return cls(
            (X.shape[0], X.shape[1]),
            X.dtype,
            # Contiguous, because the order in memory decides the order in which NumPy adds.
            lambda: (
                np.ascontiguousarray(X[start : start + length])
                for start in range(0, len(X), length)
            ),
        )

    @classmethod
    def elsewhere(cls, shape: tuple[int, int], dtype: np.dtype[np.floating[Any]]) -> Rows:
        """Stand for the rows of a client in another process.

        Their shape is all that is known; their number is 0 until the client has told it.
        """
        return cls(shape, dtype, _elsewhere)

    @property
    def are_elsewhere(self) -> bool:
        """Whether the rows are in another process, and cannot be read."""
        return self.read is _elsewhere

    @property
    def n_kept(self) -> int:
        """How many rows count."""
        return self.shape[0] if self.keep is None else int(self.keep.sum())

    @property
    def fit_one_block(self) -> bool:
        """Whether there is nothing to spread over threads."""
        return self.shape[0] <= block_length(self.shape[1])

    def scaled(self, shift: Array, scale: Array) -> Rows:
        """Return the same rows, scaled as they are read."""
        return replace(self, shift=shift, scale=scale)

    def projected(self, centre: Array, basis: Array) -> Rows:
        """Return the rows' coordinates in a subspace; computed once where there are few."""
        length = block_length(basis.shape[1])

        def project() -> Iterator[Array]:
            return ((block.astype(np.float64) - centre) @ basis for block in self.blocks())

        if self.n_kept <= FEW_BLOCKS * length:
            return Rows.from_array(np.concatenate(list(project())))
        return Rows((self.n_kept, basis.shape[1]), np.dtype(np.float64), project)

    def without_copies(self) -> Rows:
        """Return the smaller set of rows that these are several copies of, if they are.

        Copies say nothing new; taken for rows of their own they would make a cluster of each row,
        and clusters of what is chance. Only rows that are few are looked at.

        Examples
        --------
        >>> some = Rows.from_array(np.arange(24.0).reshape(12, 2))
        >>> twice = Rows.from_array(np.concatenate([*some.blocks(), *some.blocks()]))
        >>> twice.without_copies().shape
        (12, 2)
        """
        if not self.fit_one_block or self.n_kept < 2 * FEW_DISTINCT:
            return self
        X = np.concatenate(list(self.blocks()))
        if (X[0] == X).all(axis=1).sum() == 1:  # the quick answer of nearly all data
            return self
        _, which, counts = np.unique(X, axis=0, return_inverse=True, return_counts=True)
        n_copies = int(np.gcd.reduce(counts))
        if n_copies == 1 or len(counts) < FEW_DISTINCT:
            return self
        before = np.cumsum(counts) - counts
        rank = np.empty(len(X), np.intp)
        rank[np.argsort(which, kind="stable")] = np.arange(len(X)) - np.repeat(before, counts)
        return Rows.from_array(X[rank < counts[which] // n_copies])

    def blocks(self) -> Iterator[Array]:
        """Iterate over the rows that count, in blocks of bounded size."""
        start = 0
        for raw in self.read():
            block = raw
            if self.keep is not None:
                block = block[self.keep[start : start + len(raw)]]
            if self.shift is not None and self.scale is not None:
                block = ((block - self.shift) / self.scale).astype(self.dtype)
            start += len(raw)
            yield block

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return `n` of the rows, drawn without replacement, or all of them if there are fewer."""
        n_rows = self.n_kept
        if n >= n_rows:
            return np.concatenate(list(self.blocks()))
        chosen = np.sort(rng.choice(n_rows, size=n, replace=False))
        parts, start = [], 0
        for block in self.blocks():
            stop = start + len(block)
            low, high = np.searchsorted(chosen, [start, stop])
            parts.append(block[chosen[low:high] - start])
            start = stop
        return np.concatenate(parts)


def map_in_order(
    function: Callable[[T], U], items: Iterable[T], pool: Executor | None, ahead: int = 4
) -> Iterator[U]:
    """Map on the threads of a pool, results in order, only `ahead` items in flight.

    Unlike `Executor.map` it takes an item only when there is room for it, so that a file larger
    than memory is never read faster than it is used.

    Examples
    --------
    >>> list(map_in_order(abs, [-1, -2], None))
    [1, 2]
    """
    if pool is None:
        yield from map(function, items)
        return
    waiting: deque[Future[U]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()

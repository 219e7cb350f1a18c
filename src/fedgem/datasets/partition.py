"""Spreading a labelled data set over clients, in the ways that federated data differ.

==========================  ==================================================================
`partition`                 each client has some of the classes, as in the paper
`partition_by_class`        each class is at one client only
`partition_dirichlet`       the shares of the classes differ from client to client
`partition_by_size`         clients differ in size only
`partition_by_column`       the clients that are in the data, such as its recordings
==========================  ==================================================================

Each puts every row at one client, and splits a client's rows into those to train on and those to
test on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedgem.errors import InputError
from fedgem.typing import Array, BoolArray, IntArray

__all__ = [
    "FederatedSplit",
    "draw_memberships",
    "partition",
    "partition_by_class",
    "partition_by_column",
    "partition_by_size",
    "partition_dirichlet",
]

MOST_DRAWS = 1000  # of Dirichlet shares, until no client is left without a row


@dataclass(frozen=True, eq=False)
class FederatedSplit:
    """The rows of clients, those to train on apart from those to test on.

    Attributes
    ----------
    train, test : dict of str to ndarray of shape (n_rows, n_features)
        The rows of each client, shuffled; a client with few rows may have none to test on.
    train_labels, test_labels : dict of str to ndarray of shape (n_rows,)
        Their classes.
    memberships : ndarray of bool of shape (n_clients, n_classes)
        Which client has which class.
    """

    train: dict[str, Array]
    test: dict[str, Array]
    train_labels: dict[str, IntArray]
    test_labels: dict[str, IntArray]
    memberships: BoolArray


def draw_memberships(
    n_clients: int, n_clusters: int, fewest: int, most: int, rng: np.random.Generator
) -> BoolArray:
    """Draw `fewest` to `most` clusters for each client such that every cluster is at some client.

    Parameters
    ----------
    n_clients, n_clusters : int
        How many there are.
    fewest, most : int
        The least and the greatest number of clusters of a client. All clients together have to
        have room for every cluster: ``n_clients * most >= n_clusters``.
    rng : numpy.random.Generator
        What draws.

    Returns
    -------
    ndarray of bool of shape (n_clients, n_clusters)
        Which client has which cluster.

    Examples
    --------
    >>> memberships = draw_memberships(3, 5, 2, 4, np.random.default_rng(0))
    >>> memberships.any(axis=0)
    array([ True,  True,  True,  True,  True])
    """
    memberships = np.zeros((n_clients, n_clusters), dtype=np.bool_)
    # Deal the clusters like cards, so that each has a client, then fill every hand at random.
    memberships[np.arange(n_clusters) % n_clients, rng.permutation(n_clusters)] = True
    for hand in memberships:
        n_held = rng.integers(max(fewest, hand.sum()), most + 1)
        missing = rng.permutation(np.flatnonzero(~hand))
        hand[missing[: n_held - hand.sum()]] = True
    return memberships


def partition(
    X: ArrayLike,
    y: ArrayLike,
    n_clients: int,
    *,
    fewest: int = 2,
    most: int | None = None,
    shuffle: bool = True,
    train_share: float = 0.7,
    random_state: int | None = None,
) -> FederatedSplit:
    """Spread rows over clients as the paper does: each client gets some of the classes.

    Every client draws how many classes it has, and which; every class is at some client. The
    rows of a class are shared out evenly among the clients that have it.

    Parameters
    ----------
    X : array of shape (N, d)
        The rows.
    y : array of int of shape (N,)
        Their classes, numbered from 0 without a gap.
    n_clients : int
        Number of clients.
    fewest : int, default=2
        The least number of classes of a client.
    most : int, optional
        The greatest number of classes of a client; all of them by default.
    shuffle : bool, default=True
        Whether the rows of a class are shuffled before they are shared out. Otherwise each client
        gets rows that follow each other in the data, as in the program published with the paper;
        where the order tells something, as one recording after the other does, clients then differ
        by more than their classes.
    train_share : float, default=0.7
        The share of each client's rows to train on; the others are to test on.
    random_state : int or None, default=None
        Seed; the same seed gives the same split.

    Returns
    -------
    FederatedSplit
        The clients' rows, their classes, and which client has which class.

    Raises
    ------
    InputError
        If an argument is out of its range, or a class has fewer rows than clients that have it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fedgem.datasets import partition
    >>> split = partition(*load_iris(return_X_y=True), n_clients=3, random_state=0)
    >>> {name: X.shape for name, X in split.train.items()}
    {'client-1': (29, 4), 'client-2': (29, 4), 'client-3': (46, 4)}
    >>> split.memberships.sum(axis=1)
    array([2, 2, 2])
    """
    X, y, n_classes = _checked(X, y, train_share)
    _check_n_clients(n_clients)
    most = n_classes if most is None else most
    if not 1 <= fewest <= n_classes:
        raise InputError(f"fewest must be from 1 to the {n_classes} classes, got {fewest}.")
    if not fewest <= most <= n_classes:
        raise InputError(
            f"most must be from fewest, {fewest}, to the {n_classes} classes, got {most}."
        )
    if n_clients * most < n_classes:
        raise InputError(
            f"n_clients * most must be at least the {n_classes} classes, got {n_clients} * {most}."
        )
    rng = np.random.default_rng(random_state)
    memberships = draw_memberships(n_clients, n_classes, fewest, most, rng)
    parts: list[list[IntArray]] = [[] for _ in range(n_clients)]
    for c, n_holders in enumerate(memberships.sum(axis=0)):
        rows = np.flatnonzero(y == c)
        if len(rows) < n_holders:
            raise InputError(
                f"class {c} must have a row for each of the {n_holders} clients that have it, "
                f"got {len(rows)}."
            )
        shares = np.array_split(rng.permutation(rows) if shuffle else rows, n_holders)
        for holder, share in zip(np.flatnonzero(memberships[:, c]), shares, strict=True):
            parts[holder].append(share)
    return _split(X, y, _numbered([np.concatenate(own) for own in parts]), train_share, rng)


def partition_by_class(
    X: ArrayLike,
    y: ArrayLike,
    n_clients: int,
    *,
    train_share: float = 0.7,
    random_state: int | None = None,
) -> FederatedSplit:
    """Deal whole classes out to clients: all rows of a class are at one client.

    Parameters
    ----------
    X, y, train_share, random_state
        As in `partition`.
    n_clients : int
        Number of clients, at most that of classes.

    Returns
    -------
    FederatedSplit
        The clients' rows, their classes, and which client has which class.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from fedgem.datasets import partition_by_class
    >>> split = partition_by_class(*load_digits(return_X_y=True), n_clients=3, random_state=0)
    >>> split.memberships.sum(axis=1)
    array([4, 3, 3])
    >>> split.memberships.sum(axis=0)
    array([1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    """
    X, y, n_classes = _checked(X, y, train_share)
    _check_n_clients(n_clients)
    if n_clients > n_classes:
        raise InputError(
            f"n_clients must be at most the {n_classes} classes, so that each client has a class "
            f"of its own, got {n_clients}."
        )
    rng = np.random.default_rng(random_state)
    hands = np.array_split(rng.permutation(n_classes), n_clients)
    parts = [np.flatnonzero(np.isin(y, hand)) for hand in hands]
    return _split(X, y, _numbered(parts), train_share, rng)


def partition_dirichlet(
    X: ArrayLike,
    y: ArrayLike,
    n_clients: int,
    *,
    alpha: float,
    train_share: float = 0.7,
    random_state: int | None = None,
) -> FederatedSplit:
    """Share each class out among all clients in proportions drawn from a Dirichlet distribution.

    Parameters
    ----------
    X, y, train_share, random_state
        As in `partition`.
    n_clients : int
        Number of clients.
    alpha : float
        How even the proportions are: with 100 clients are nearly alike, with 0.1 a class is mostly
        at a few of them.

    Returns
    -------
    FederatedSplit
        The clients' rows, their classes, and which client has which class.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fedgem.datasets import partition_dirichlet
    >>> iris = load_iris(return_X_y=True)
    >>> split = partition_dirichlet(*iris, 3, alpha=0.5, train_share=1, random_state=0)
    >>> for classes in split.train_labels.values():
    ...     print(np.bincount(classes, minlength=3))
    [15 11 20]
    [ 0  9 10]
    [35 30 20]
    """
    X, y, n_classes = _checked(X, y, train_share)
    _check_n_clients(n_clients)
    if not 0 < alpha < np.inf:
        raise InputError(f"alpha must be above 0 and finite, got {alpha}.")
    rng = np.random.default_rng(random_state)
    counts = np.bincount(y)
    for _ in range(MOST_DRAWS):
        proportions = rng.dirichlet(np.full(n_clients, alpha), size=n_classes)
        ends = np.round(np.cumsum(proportions, axis=1) * counts[:, None]).astype(np.intp)
        if np.diff(ends, prepend=0, axis=1).sum(axis=0).all():
            break
    else:
        raise InputError(
            f"alpha must be large enough that each of the {n_clients} clients gets a row, got "
            f"{alpha}, which left one without in each of {MOST_DRAWS} draws."
        )
    shares = [
        np.split(rng.permutation(np.flatnonzero(y == c)), ends[c, :-1]) for c in range(n_classes)
    ]
    parts = [np.concatenate(own) for own in zip(*shares, strict=True)]
    return _split(X, y, _numbered(parts), train_share, rng)


def partition_by_size(
    X: ArrayLike,
    y: ArrayLike,
    sizes: Sequence[float] | Array | IntArray,
    *,
    train_share: float = 0.7,
    random_state: int | None = None,
) -> FederatedSplit:
    """Give clients different numbers of rows, in which the classes are mixed alike.

    Parameters
    ----------
    X, y, train_share, random_state
        As in `partition`.
    sizes : sequence of float
        How large the clients are, each beside the others: numbers of rows, or any numbers in
        their proportions, which are scaled to use every row. ``1 / np.arange(1, 11)`` are ten
        clients that follow a power law.

    Returns
    -------
    FederatedSplit
        The clients' rows, their classes, and which client has which class.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fedgem.datasets import partition_by_size
    >>> iris = load_iris(return_X_y=True)
    >>> split = partition_by_size(*iris, [90, 45, 15], train_share=1, random_state=0)
    >>> for classes in split.train_labels.values():
    ...     print(np.bincount(classes))
    [30 30 30]
    [15 15 15]
    [5 5 5]
    """
    X, y, _ = _checked(X, y, train_share)
    weights = np.asarray(sizes, dtype=np.float64)
    if weights.ndim != 1 or not len(weights) or not (np.isfinite(weights) & (weights > 0)).all():
        raise InputError(f"sizes must be one number above 0 per client, got {sizes}.")
    ends = np.round(np.cumsum(weights / weights.sum()) * len(y)).astype(np.intp)
    n_rows = np.diff(ends, prepend=0)
    if not n_rows.all():
        raise InputError(
            f"sizes must leave each client a row out of {len(y)}, got {sizes}, which leave client "
            f"{int(np.argmin(n_rows)) + 1} without."
        )
    rng = np.random.default_rng(random_state)
    # Each client takes its rows at even distances from the rows in the order of their classes.
    places = np.concatenate([(np.arange(n) + rng.random()) / n for n in n_rows])
    takers = np.repeat(np.arange(len(n_rows)), n_rows)[np.argsort(places, kind="stable")]
    shuffled = rng.permutation(len(y))
    by_class = shuffled[np.argsort(y[shuffled], kind="stable")]
    parts = [by_class[takers == g] for g in range(len(n_rows))]
    return _split(X, y, _numbered(parts), train_share, rng)


def partition_by_column(
    X: ArrayLike,
    y: ArrayLike,
    column: ArrayLike,
    *,
    train_share: float = 0.7,
    random_state: int | None = None,
) -> FederatedSplit:
    """Make a client of each value of a column: the clients that are in the data by nature.

    Parameters
    ----------
    X, y, train_share, random_state
        As in `partition`.
    column : array of shape (N,)
        What says whose a row is: its recording, machine or hospital. The clients are named by it.

    Returns
    -------
    FederatedSplit
        The clients' rows, their classes, and which client has which class.

    Examples
    --------
    >>> from fedgem.datasets import partition_by_column
    >>> X, y = np.arange(10).reshape(5, 2), [0, 0, 1, 1, 1]
    >>> plants = ["Ulm", "Linz", "Ulm", "Ulm", "Linz"]
    >>> split = partition_by_column(X, y, plants, random_state=0)
    >>> {name: len(rows) for name, rows in split.train.items()}
    {'Linz': 1, 'Ulm': 2}
    """
    X, y, _ = _checked(X, y, train_share)
    column = np.asarray(column)
    if column.shape != y.shape:
        raise InputError(
            f"column must have one value per row of X, {len(y)}, got an array of shape "
            f"{column.shape}."
        )
    values, owners = np.unique(column, return_inverse=True)
    parts = {str(value): np.flatnonzero(owners == g) for g, value in enumerate(values)}
    return _split(X, y, parts, train_share, np.random.default_rng(random_state))


def _checked(X: ArrayLike, y: ArrayLike, train_share: float) -> tuple[Array, IntArray, int]:
    """Return rows and classes as arrays, and the number of classes."""
    X, y = np.asarray(X), np.asarray(y)
    if len(X) != len(y):
        raise InputError(f"y must have one class per row of X, {len(X)}, got {len(y)}.")
    classes = np.unique(y)
    if not np.array_equal(classes, np.arange(len(classes))):
        raise InputError(
            f"y must number the classes 0, 1, 2, ... without a gap, got {classes.tolist()}."
        )
    if not len(classes):
        raise InputError("X must have at least one row, got none.")
    if not 0 < train_share <= 1:
        raise InputError(f"train_share must be above 0 and at most 1, got {train_share}.")
    return X, y.astype(np.intp), len(classes)


def _check_n_clients(n_clients: int) -> None:
    if n_clients < 1:
        raise InputError(f"n_clients must be at least 1, got {n_clients}.")


def _numbered(parts: Sequence[IntArray]) -> dict[str, IntArray]:
    """Name clients by their numbers, in as many digits as the last one needs."""
    width = len(str(len(parts)))
    return {f"client-{g:0{width}d}": own for g, own in enumerate(parts, start=1)}


def _split(
    X: Array,
    y: IntArray,
    parts: Mapping[str, IntArray],
    train_share: float,
    rng: np.random.Generator,
) -> FederatedSplit:
    """Split the rows that each client has into those to train on and those to test on."""
    counts = [np.bincount(y[own], minlength=y.max() + 1) for own in parts.values()]
    split = FederatedSplit({}, {}, {}, {}, np.array(counts) > 0)
    for name, own in parts.items():
        rows = rng.permutation(own)
        train, test = np.split(rows, [max(1, round(train_share * len(rows)))])
        split.train[name], split.train_labels[name] = X[train], y[train]
        split.test[name], split.test_labels[name] = X[test], y[test]
    return split

"""Spreading a labelled data set over clients that each have some of its classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedgem.typing import Array, BoolArray, IntArray

__all__ = ["FederatedSplit", "draw_memberships", "partition"]


@dataclass(frozen=True, eq=False)
class FederatedSplit:
    """The rows of clients, those to train on apart from those to test on.

    Attributes
    ----------
    train, test : dict of str to ndarray of shape (n_rows, n_features)
        The rows of each client, shuffled.
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
    train_share: float = 0.7,
    random_state: int | None = None,
) -> FederatedSplit:
    """Spread rows over clients as the paper does: each client gets some of the classes.

    Every client draws how many classes it has, and which; every class is at some client. The
    rows of a class are shuffled and shared out evenly among the clients that have it.

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
    ValueError
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
    X, y = np.asarray(X), np.asarray(y)
    if len(X) != len(y):
        raise ValueError(f"y must have one class per row of X, {len(X)}, got {len(y)}.")
    classes, counts = np.unique(y, return_counts=True)
    if not np.array_equal(classes, np.arange(len(classes))):
        raise ValueError(
            f"y must number the classes 0, 1, 2, ... without a gap, got {classes.tolist()}."
        )
    n_classes = len(classes)
    most = n_classes if most is None else most
    if n_clients < 1:
        raise ValueError(f"n_clients must be at least 1, got {n_clients}.")
    if not 1 <= fewest <= n_classes:
        raise ValueError(f"fewest must be from 1 to the {n_classes} classes, got {fewest}.")
    if not fewest <= most <= n_classes:
        raise ValueError(
            f"most must be from fewest, {fewest}, to the {n_classes} classes, got {most}."
        )
    if n_clients * most < n_classes:
        raise ValueError(
            f"n_clients * most must be at least the {n_classes} classes, got {n_clients} * {most}."
        )
    if not 0 < train_share <= 1:
        raise ValueError(f"train_share must be above 0 and at most 1, got {train_share}.")

    rng = np.random.default_rng(random_state)
    memberships = draw_memberships(n_clients, n_classes, fewest, most, rng)
    parts: list[list[IntArray]] = [[] for _ in range(n_clients)]
    for c, (n_rows, n_holders) in enumerate(zip(counts, memberships.sum(axis=0), strict=True)):
        if n_rows < n_holders:
            raise ValueError(
                f"class {c} must have a row for each of the {n_holders} clients that have it, "
                f"got {n_rows}."
            )
        shares = np.array_split(rng.permutation(np.flatnonzero(y == c)), n_holders)
        for holder, share in zip(np.flatnonzero(memberships[:, c]), shares, strict=True):
            parts[holder].append(share)

    split = FederatedSplit({}, {}, {}, {}, memberships)
    width = len(str(n_clients))
    for g, own in enumerate(parts, start=1):
        name = f"client-{g:0{width}d}"
        rows = rng.permutation(np.concatenate(own))
        train, test = np.split(rows, [round(train_share * len(rows))])
        split.train[name], split.train_labels[name] = X[train], y[train]
        split.test[name], split.test_labels[name] = X[test], y[test]
    return split

"""What methods are compared on: rows spread over clients, drawn anew for each seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from fedgem.datasets import Dataset, FederatedSplit, load_dataset, make_federated_blobs, partition
from fedgem.studies.program import published_split
from fedgem.studies.settings import SETTINGS

Draw = Callable[[int, Path | None], FederatedSplit]
BALANCES = ("nominal", "client imbalance", "cluster imbalance")
SYNTHETIC_UPSILONS = (0.5, 1.0, 5.0, 10.0, 50.0)
TEST_ROWS = 50  # of each client, in the study of sizes
FIVE_CLIENTS = (0.40, 0.24, 0.16, 0.16, 0.04)  # their shares of the rows where they differ


@dataclass(frozen=True)
class Case:
    """Where methods are compared.

    Attributes
    ----------
    data : str
        The data set, or the kind of synthetic data.
    draw : callable
        Returns the clients' rows for a seed and a folder of data sets.
    x : float, optional
        What a study varies: the position on the axis of its figures.
    upsilons : tuple of float
        The factors of the final radii that the paper tries. One is told to methods that take it;
        among several, they have to choose.
    participation : float
        The share of the clients that answer in a round.
    is_real : bool
        Whether `draw` reads files.
    max_iter : int, optional
        The rounds of all methods that have that parameter; their own by default.
    methods : tuple of str
        The only methods that are measured here, where others would take days.
    most_seeds : int, optional
        How many seeds there are at most, likewise.
    """

    data: str
    draw: Draw
    x: float | None = None
    upsilons: tuple[float, ...] = ()
    participation: float = 1.0
    is_real: bool = False
    max_iter: int | None = None
    methods: tuple[str, ...] = ()
    most_seeds: int | None = None


@cache
def loaded(name: str, data_dir: Path | None) -> Dataset:
    """Load a data set once for all its seeds."""
    return load_dataset(name, data_dir)


def spread(name: str, seed: int, data_dir: Path | None) -> FederatedSplit:
    """Spread a data set over clients as the paper describes it."""
    known, how = loaded(name, data_dir), SETTINGS[name]
    return partition(
        known.X,
        known.y,
        how.n_clients,
        most=len(known.class_names) - how.spared,
        train_share=how.train_share,
        random_state=seed,
    )


def spread_as_published(name: str, seed: int, data_dir: Path | None) -> FederatedSplit:
    """Spread a data set over clients as the published program does."""
    known, how = loaded(name, data_dir), SETTINGS[name]
    most = len(known.class_names) - how.spared
    return published_split(known.X, known.y, how.n_clients, most, how.train_share, seed)


def real(
    name: str,
    *,
    participation: float = 1.0,
    x: float | None = None,
    max_iter: int | None = None,
) -> Case:
    """Return one of the paper's data sets."""
    return Case(
        name,
        partial(spread, name),
        x,
        SETTINGS[name].upsilons,
        participation=participation,
        is_real=True,
        max_iter=max_iter,
    )


def real_as_published(name: str) -> Case:
    """Return one of the paper's data sets with the clients of the published program."""
    draw = partial(spread_as_published, name)
    return Case(name, draw, upsilons=SETTINGS[name].upsilons, is_real=True)


def draw_blobs(
    seed: int,
    data_dir: Path | None = None,
    *,
    n_clients: int,
    n_train: int,
    n_test: int,
    min_distance: float,
    balance: str,
    n_clusters: int = 10,
    n_features: int = 4,
) -> FederatedSplit:
    """Draw the paper's round clusters; the numbers of rows are those of all clients.

    Under client imbalance, clients have five different shares of the rows, in turn.
    """
    shares = np.full(n_clients, 1 / n_clients)
    if balance == "client imbalance":
        shares = np.resize(FIVE_CLIENTS, n_clients)
        shares /= shares.sum()
    trains, tests = (np.rint(n * shares).astype(int) for n in (n_train, n_test))
    blobs = make_federated_blobs(
        n_clients,
        n_clusters,
        n_features,
        n_rows=(trains + tests).tolist(),
        min_distance=min_distance,
        equal_weights=balance != "cluster imbalance",
        random_state=seed,
    )
    split = FederatedSplit({}, {}, {}, {}, blobs.memberships)
    for n, (name, X) in zip(trains, blobs.clients.items(), strict=True):
        split.train[name], split.test[name] = np.split(X, [n])
        split.train_labels[name], split.test_labels[name] = np.split(blobs.labels[name], [n])
    return split


def blobs(
    balance: str,
    *,
    x: float | None = None,
    min_distance: float = 4.0,
    n_clients: int = 5,
    n_train: int = 2500,
    n_test: int = 5000,
    upsilons: tuple[float, ...] = SYNTHETIC_UPSILONS,
    participation: float = 1.0,
) -> Case:
    """Return the paper's round clusters, balanced over clients and clusters or not."""
    draw = partial(
        draw_blobs,
        n_clients=n_clients,
        n_train=n_train,
        n_test=n_test,
        min_distance=min_distance,
        balance=balance,
    )
    return Case(balance, draw, x, upsilons, participation)


def sized(
    data: str,
    x: float,
    *,
    n_clients: int = 5,
    n_train: int,
    n_clusters: int = 10,
    n_features: int = 15,
    min_distance: float = 2.0,
    methods: tuple[str, ...] = (),
    most_seeds: int | None = None,
) -> Case:
    """Return round clusters to time a fit of 10 rounds on; by default as in the paper's study."""
    draw = partial(
        draw_blobs,
        n_clients=n_clients,
        n_train=n_train,
        n_test=TEST_ROWS * n_clients,
        min_distance=min_distance,
        balance="nominal",
        n_clusters=n_clusters,
        n_features=n_features,
    )
    return Case(data, draw, x, (1.0,), max_iter=10, methods=methods, most_seeds=most_seeds)

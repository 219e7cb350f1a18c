"""The studies. A new one is an entry here; a new method, a class anywhere under `@method`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedgem.baselines import Entry
from fedgem.studies.cases import BALANCES, blobs, real, real_as_published, sized
from fedgem.studies.program import PROGRAM
from fedgem.studies.rows import Row
from fedgem.studies.settings import SETTINGS
from fedgem.studies.study import Measurement, Study
from fedgem.studies.views import (
    Column,
    as_published,
    finds_number,
    knows,
    matrix,
    overview,
    p_value,
    rounds,
    score,
    seconds,
    series,
    table,
    traffic,
    within_published,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedgem.studies.tables import Table

TableOf = Callable[[Sequence[Row]], "Table"]
FigureOf = Callable[[Sequence[Row]], "Figure | None"]
IMAGES = ("mnist", "fashion-mnist", "emnist", "cifar-10")
SIZES = ("features", "rows of each client", "clusters", "clients")
MANY = ("clients of 20 rows", "rows of 100 clients")
OURS = ("FedGEM", "FedGEM, paper")
SHARES = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
AXES = {
    "ari_local": "ARI, local",
    "ari_global": "ARI, global",
    "silhouette_local": "silhouette, local",
    "n_clusters": "clusters found",
    "seconds": "seconds",
}


def table_of(title: str, columns: Mapping[str, Column], x: str | None = None) -> TableOf:
    """Return what makes a table of rows."""
    return partial(_table, title, columns, x)


def _table(title: str, columns: Mapping[str, Column], x: str | None, rows: Sequence[Row]) -> Table:
    return table(title, rows, columns, x)


def communication(rows: Sequence[Row]) -> Table:
    """Return the table of what federated methods send."""
    columns: dict[str, Column] = {
        "rounds": rounds,
        "up, a round": traffic("up", each_round=True),
        "down, a round": traffic("down", each_round=True),
        "up, in total": traffic("up", each_round=False),
        "down, in total": traffic("down", each_round=False),
        "ARI local": score("ari_local"),
    }
    sent = [row for row in rows if row["is_federated"]]
    return table("Bytes sent, by all clients together", sent, columns)


def overview_of(title: str, *keys: str) -> TableOf:
    """Return what makes a table of means of rows."""
    return lambda rows: overview(title, rows, keys)


def lines_of(
    key: str, x: str | None, *, log: bool = False, log_y: bool = False, data: Sequence[str] = ()
) -> FigureOf:
    """Return what makes a figure of what a study varies, on some data; it needs Matplotlib."""

    def draw(rows: Sequence[Row]) -> Figure | None:
        from fedgem.studies import figures

        truth, shown = None, [row for row in rows if not data or row["data"] in data]
        if key == "n_clusters":
            truth = float(np.mean([row["n_classes"] for row in rows]))
            shown = [row for row in shown if finds_number(row)]
        panels = series(shown, key)
        if not panels:
            return None
        return figures.lines(panels, x, AXES[key], log=log, log_y=log_y, truth=truth)

    return draw


def ranks_of(key: str, what: str) -> FigureOf:
    """Return what makes a figure of average ranks, of two methods or more; it needs Matplotlib."""

    def draw(rows: Sequence[Row]) -> Figure | None:
        from fedgem.studies import figures

        scores, methods = matrix(rows, key)
        if len(scores) == 0 or len(methods) < 2:
            return None
        return figures.critical_differences(scores, methods, what)

    return draw


def federated(entry: Entry) -> bool:
    """Take the methods whose clients keep their rows."""
    return entry.is_federated and entry is not PROGRAM


def papers(entry: Entry) -> bool:
    """Take the paper's way alone: the text's and the published program's."""
    return entry.name == "FedGEM, paper" or entry is PROGRAM


def ours_and_central(entry: Entry) -> bool:
    """Take FedGEM and what the paper compares it with on synthetic data."""
    return entry.name in ("FedGEM", "FedGEM, paper", "GMM, paper (central)") or entry is PROGRAM


def timed(entry: Entry) -> bool:
    """Take FedGEM and what the paper compares its runtime with."""
    return entry.name in (*OURS, "FFCM-avg2", "FedKmeans", "AFCL")


BENCHMARK = Measurement("benchmark", tuple(real(name) for name in SETTINGS))
PUBLISHED = Measurement(
    "published", tuple(real_as_published(name) for name in SETTINGS), lambda e: e is PROGRAM
)
PARTICIPATION = Measurement(
    "participation",
    (
        *(real("mnist", x=share, participation=share) for share in SHARES),
        *(
            blobs("nominal", x=share, participation=share, n_clients=20, n_train=10_000)
            for share in SHARES
        ),
    ),
    federated,
)
SENSITIVITY = Measurement(
    "sensitivity",
    tuple(
        blobs(balance, x=float(r), min_distance=float(r))
        for balance in BALANCES
        for r in range(1, 9)
    ),
    ours_and_central,
)
RADIUS = Measurement(
    "radius",
    tuple(
        blobs(balance, x=u, upsilons=(u,), n_clients=15, n_train=7500, n_test=2000)
        for balance in BALANCES
        for u in (0.1, 1.0, 10.0, 100.0)
    ),
    papers,
)
RUNTIME = Measurement(
    "runtime", tuple(real(name, max_iter=10) for name in IMAGES), timed, is_timed=True
)
# As in the nominal case of the sensitivity study. One seed: 10,000 clients take minutes.
beyond = partial(sized, n_features=4, min_distance=4.0, methods=OURS, most_seeds=1)
SCALABILITY = Measurement(
    "scalability",
    (
        *(sized("features", d, n_features=d, n_train=2500) for d in (5, 25, 45, 65)),
        *(sized("rows of each client", n, n_train=5 * n) for n in (500, 2500, 4500, 6500)),
        *(sized("clusters", k, n_clusters=k, n_train=2500) for k in (5, 25, 45, 65)),
        *(sized("clients", g, n_clients=g, n_train=1000) for g in (5, 25, 45, 65)),
        *(beyond(MANY[0], g, n_clients=g, n_train=20 * g) for g in (100, 1000, 10_000)),
        *(beyond(MANY[1], n, n_clients=100, n_train=n) for n in (10**5, 10**6, 10**7)),
    ),
    timed,
    is_timed=True,
)

VARIED: dict[str, Column] = {
    "ARI local": score("ari_local"),
    "ARI global": score("ari_global"),
    "SS local": score("silhouette_local"),
    "K-hat": score("n_clusters"),
}
STUDIES = {
    study.name: study
    for study in (
        Study(
            "table1",
            "ARI of all methods on the paper's eight data sets (its table 1)",
            BENCHMARK,
            {
                "table1": table_of(
                    "Adjusted Rand index of rows that did not train",
                    {
                        "told": knows,
                        "local": score("ari_local"),
                        "global": score("ari_global"),
                        "published": as_published("ari"),
                        "seconds": seconds,
                        "p local": p_value("ari_local"),
                        "p global": p_value("ari_global"),
                    },
                ),
                "overview": overview_of("ARI, local / global", "ari_local", "ari_global"),
            },
            {
                "ranks-local": ranks_of("ari_local", "local ARI"),
                "ranks-global": ranks_of("ari_global", "global ARI"),
            },
        ),
        Study(
            "table2",
            "the numbers of clusters found on the paper's eight data sets (its table 2)",
            BENCHMARK,
            {
                "table2": table_of(
                    "Number of clusters found",
                    {
                        "told": knows,
                        "K-hat": score("n_clusters"),
                        "|K-hat - K|": score("miscount"),
                        "published": as_published("n_clusters"),
                        "seconds": seconds,
                    },
                )
            },
        ),
        Study(
            "silhouette",
            "silhouettes of all methods on the paper's eight data sets (its table 6)",
            BENCHMARK,
            {
                "silhouette": table_of(
                    "Silhouette of rows that did not train",
                    {
                        "told": knows,
                        "local": score("silhouette_local"),
                        "global": score("silhouette_global"),
                        "published": as_published("silhouette"),
                        "seconds": seconds,
                    },
                )
            },
        ),
        Study(
            "published",
            "the published program measured anew, with its way to spread rows, beside its figures",
            PUBLISHED,
            {
                "published": table_of(
                    "The published program, beside what was published",
                    {
                        "ARI local": score("ari_local"),
                        "published": as_published("ari"),
                        "within": within_published("ari", "ari_local"),
                        "SS local": score("silhouette_local"),
                        "published SS": as_published("silhouette"),
                        "K-hat": score("n_clusters"),
                        "published K-hat": as_published("n_clusters"),
                        "seconds": seconds,
                    },
                )
            },
        ),
        Study(
            "participation",
            "how few clients may answer in a round",
            PARTICIPATION,
            {
                "participation": table_of(
                    "Share of the clients that answer in a round", VARIED, "share"
                )
            },
            {
                f"participation-{name}": lines_of(key, "share of the clients in a round")
                for name, key in (
                    ("ari", "ari_local"),
                    ("ari-global", "ari_global"),
                    ("clusters", "n_clusters"),
                )
            },
        ),
        Study(
            "communication",
            "bytes that cross the wire, by all clients together",
            BENCHMARK,
            {"communication": communication},
        ),
        Study(
            "sensitivity",
            "how far apart clusters have to be (the paper's sensitivity study)",
            SENSITIVITY,
            {"sensitivity": table_of("Distance between the closest clusters", VARIED, "R_min")},
            {
                f"sensitivity-{name}": lines_of(key, "$R_{min}$")
                for name, key in (
                    ("ari", "ari_local"),
                    ("silhouette", "silhouette_local"),
                    ("clusters", "n_clusters"),
                )
            },
        ),
        Study(
            "radius",
            "what the factor of the paper's final radii does",
            RADIUS,
            {"radius": table_of("The factor of the final radii", VARIED, "upsilon")},
            {
                f"radius-{name}": lines_of(key, r"$\upsilon$", log=True)
                for name, key in (("ari", "ari_local"), ("clusters", "n_clusters"))
            },
        ),
        Study(
            "runtime",
            "seconds of a fit on the paper's images, with 10 rounds (its table of runtimes)",
            RUNTIME,
            {
                "runtime": table_of(
                    "Seconds of a fit, on one thread",
                    {
                        "told": knows,
                        "seconds": score("seconds"),
                        "published": as_published("seconds"),
                        "ARI local": score("ari_local"),
                        "K-hat": score("n_clusters"),
                    },
                )
            },
        ),
        Study(
            "scalability",
            "seconds of a fit of more features, rows, clusters and clients",
            SCALABILITY,
            {
                "scalability": table_of(
                    "Seconds of a fit with 10 rounds, on one thread",
                    {
                        "told": knows,
                        "seconds": score("seconds"),
                        "ARI local": score("ari_local"),
                        "K-hat": score("n_clusters"),
                    },
                )
            },
            {
                "scalability": lines_of("seconds", None, log_y=True, data=SIZES),
                "scalability-beyond": lines_of("seconds", None, log=True, log_y=True, data=MANY),
            },
        ),
    )
}

"""What a study shows of its rows: columns of a table, and the points of a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedgem.studies.program import PROGRAM
from fedgem.studies.published import OURS, published
from fedgem.studies.rows import Row
from fedgem.studies.statistics import paired_p_values
from fedgem.studies.tables import Cell, Table
from fedgem.typing import Array

Place = tuple[str, float | None]  # a data set, and what the study varies
SCORES = {  # digits, and whether the higher is the better
    "ari_local": (3, True),
    "ari_global": (3, True),
    "silhouette_local": (3, True),
    "silhouette_global": (3, True),
    "n_clusters": (1, None),
    "miscount": (1, False),
    "seconds": (3, False),
}


@dataclass(frozen=True)
class Group:
    """The rows of a method in one place, a row for each seed.

    Attributes
    ----------
    data : str
        The data set.
    x : float, optional
        What the study varies.
    method : str
        The method.
    rows : tuple of Row
        Those that did not fail.
    n_failed : int
        How many failed.
    """

    data: str
    x: float | None
    method: str
    rows: tuple[Row, ...]
    n_failed: int

    def values(self, key: str) -> Array:
        """Return one entry of all rows."""
        return np.array([row[key] for row in self.rows], dtype=float)


# From a group and those of all methods in its place to a cell.
Column = Callable[[Group, Sequence[Group]], Cell]


def groups_of(rows: Sequence[Row]) -> dict[Place, list[Group]]:
    """Return the methods' rows by place, in the order of the rows."""
    found: dict[tuple[Place, str], list[Row]] = {}
    for row in rows:
        found.setdefault(((row["data"], row["x"]), row["method"]), []).append(row)
    places: dict[Place, list[Group]] = {}
    for (place, method), own in found.items():
        good = tuple(row for row in own if row["error"] is None)
        places.setdefault(place, []).append(Group(*place, method, good, len(own) - len(good)))
    return places


def table(
    title: str, rows: Sequence[Row], columns: Mapping[str, Column], x: str | None = None
) -> Table:
    """Return a table with a line for each method in each place.

    Parameters
    ----------
    title : str
        What it shows.
    rows : sequence of Row
        What was measured.
    columns : dict of str to column
        What to show of each group of rows.
    x : str, optional
        What the study varies; the data sets' names say it by default.
    """
    lines = []
    for (data, at), peers in groups_of(rows).items():
        n_classes = next((g.rows[0]["n_classes"] for g in peers if g.rows), "?")
        place = f"{data} (K = {n_classes})"
        if at is not None:
            place = f"{data} = {at:g}" if x is None else f"{data}, {x} = {at:g}"
        for group in peers:
            cells = (column(group, peers) for column in columns.values())
            lines.append((Cell(place), Cell(group.method), *cells))
    return Table(title, ("data", "method", *columns), tuple(lines), notes(rows))


def notes(rows: Sequence[Row]) -> tuple[str, ...]:
    """Say how many seeds there were, what failed and why, and with what it was measured."""
    seeds = [len(group.rows) + group.n_failed for p in groups_of(rows).values() for group in p]
    span = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    failed: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row["error"] is not None:
            which = (row["method"], row["data"], row["error"])
            failed[which] = failed.get(which, 0) + 1
    return (
        f"Mean and standard deviation of {span} seed{'s' * (max(seeds) > 1)}. Bold: the best mean.",
        *(f"Failed: {m} on {d}, {n} times: {error}" for (m, d, error), n in failed.items()),
        f"Measured with {'; '.join(sorted({row['versions'] for row in rows}))}.",
    )


def finds_number(row: Row) -> bool:
    """Tell whether a method was not told how many clusters there are, and did not fail."""
    return row["error"] is None and "K" not in row["knows"].split(", ")


def score(key: str) -> Column:
    """Return the column of a score: its mean and its standard deviation."""
    digits, higher = SCORES[key]

    def column(group: Group, peers: Sequence[Group]) -> Cell:
        if not group.rows:
            return Cell("failed")
        text = mean_and_spread(group.values(key), digits)
        if group.n_failed:
            text += f" ({group.n_failed} failed)"
        means = [other.values(key).mean() for other in peers if other.rows]
        if higher is None or len(means) < 2:
            return Cell(text)
        return Cell(text, group.values(key).mean() == (max if higher else min)(means))

    return column


def mean_and_spread(values: Array, digits: int) -> str:
    """Return mean and standard deviation as a text; of one value, itself.

    Examples
    --------
    >>> mean_and_spread(np.array([0.5, 0.7]), 2)
    '0.60 ± 0.14'
    """
    if len(values) == 0:
        return ""
    text = f"{values.mean():.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {values.std(ddof=1):.{digits}f}"


def seconds(group: Group, peers: Sequence[Group]) -> Cell:
    """Show the seconds of a fit."""
    return Cell(f"{group.values('seconds').mean():.2g}" if group.rows else "")


def knows(group: Group, peers: Sequence[Group]) -> Cell:
    """Show what the method is told."""
    return Cell(group.rows[0]["knows"] if group.rows else "")


def p_value(key: str) -> Column:
    """Return the column of p-values against the method with the best mean."""

    def column(group: Group, peers: Sequence[Group]) -> Cell:
        by_seed = {
            other.method: {row["seed"]: row[key] for row in other.rows}
            for other in peers
            if other.rows
        }
        seeds = sorted(set.intersection(*map(set, by_seed.values())))
        if group.method not in by_seed or not seeds or len(by_seed) < 2:
            return Cell()
        scores = {name: np.array([own[s] for s in seeds]) for name, own in by_seed.items()}
        best = max(scores, key=lambda name: float(scores[name].mean()))
        if group.method == best:
            return Cell("best")
        return Cell(f"{paired_p_values(scores, best)[group.method]:.2g}")

    return column


def as_published(name: str) -> Column:
    """Return the column of what the paper publishes."""

    def column(group: Group, peers: Sequence[Group]) -> Cell:
        digits = {"n_clusters": 1, "seconds": 0}.get(name, 3)
        found = published(name, _in_the_paper(group.method), group.data)
        return Cell("" if found is None else f"{found[0]:.{digits}f} ± {found[1]:.{digits}f}")

    return column


def within_published(name: str, key: str) -> Column:
    """Return the column that says whether the mean is within a published standard deviation."""

    def column(group: Group, peers: Sequence[Group]) -> Cell:
        found = published(name, _in_the_paper(group.method), group.data)
        if found is None or not group.rows:
            return Cell()
        mean, spread = found
        return Cell("yes" if abs(group.values(key).mean() - mean) <= spread else "no")

    return column


def _in_the_paper(method: str) -> str:
    return OURS if method == PROGRAM.name else method


def traffic(direction: str, *, each_round: bool) -> Column:
    """Return the column of bytes sent up or down, by all clients together."""

    def column(group: Group, peers: Sequence[Group]) -> Cell:
        if not group.rows:
            return Cell()
        values = group.values(f"bytes_{direction}")
        if each_round:
            values = values / np.maximum(group.values("n_rounds"), 1)
        return Cell(f"{values.mean():,.0f}")

    return column


def rounds(group: Group, peers: Sequence[Group]) -> Cell:
    """Show the number of rounds."""
    return Cell(mean_and_spread(group.values("n_rounds"), 1))


def overview(title: str, rows: Sequence[Row], keys: Sequence[str]) -> Table:
    """Return a table with a line for each method and a column for each data set: means alone."""
    places = groups_of(rows)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    means = {
        (group.method, place): [group.values(key).mean() for key in keys]
        for place, peers in places.items()
        for group in peers
        if group.rows
    }

    def cell(method: str, place: Place) -> Cell:
        own = means.get((method, place))
        if own is None:
            return Cell()
        best = max(m[0] for (_, p), m in means.items() if p == place)
        return Cell(" / ".join(f"{value:.3f}" for value in own), own[0] == best)

    lines = [(Cell(m), *(cell(m, place) for place in places)) for m in methods]
    return Table(title, ("method", *(data for data, _ in places)), tuple(lines), notes(rows))


def series(rows: Sequence[Row], key: str) -> dict[str, dict[str, Array]]:
    """Return the points of a figure: for each data set and method x, mean, standard deviation."""
    panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for (data, x), peers in groups_of(rows).items():
        for group in peers:
            if group.rows and x is not None:
                values = group.values(key)
                point = (x, float(values.mean()), float(values.std(ddof=min(1, len(values) - 1))))
                panels.setdefault(data, {}).setdefault(group.method, []).append(point)
    return {
        data: {name: np.array(sorted(points)).T for name, points in own.items()}
        for data, own in panels.items()
    }


def matrix(rows: Sequence[Row], key: str) -> tuple[Array, list[str]]:
    """Return scores by case and method, nan where a method failed; cases that all have met."""
    by_case: dict[tuple[str, float | None, int], dict[str, float]] = {}
    for row in rows:
        value = np.nan if row["error"] is not None else row[key]
        by_case.setdefault((row["data"], row["x"], row["seed"]), {})[row["method"]] = value
    methods = list(dict.fromkeys(row["method"] for row in rows))
    complete = [own for own in by_case.values() if len(own) == len(methods)]
    return np.array([[own[m] for m in methods] for own in complete]), methods

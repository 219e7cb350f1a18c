"""The page of benchmarks, written from the rows that were measured.

python -m fedgem.studies.page docs/benchmarks > docs/benchmarks.md
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedgem.errors import InputError
from fedgem.studies.catalogue import STUDIES
from fedgem.studies.rows import Row, read
from fedgem.studies.running import in_order, rows_of
from fedgem.studies.tables import markdown
from fedgem.studies.views import finds_number, groups_of

OURS = "FedGEM"
HEAD = """# Benchmarks

<!-- Written by `python -m fedgem.studies.page`; change that, or measure again. -->
"""


def page(out: Path) -> str:
    """Return the page, in Markdown, of all studies that were measured.

    Parameters
    ----------
    out : path
        The folder of all studies.
    """
    parts = [HEAD]
    for study in STUDIES.values():
        rows = in_order(read(rows_of(study.measurement, out)), study.measurement)
        if not rows:
            continue
        if study.name == "table1":
            parts.append(in_words(rows) + "\n")
        parts.append(f"## {study.about[0].upper()}{study.about[1:]}\n")
        parts.append(f"`fedgem study {study.name}`\n")
        parts += [markdown(make(rows)) for make in study.tables.values()]
    if len(parts) == 1:
        raise InputError(
            f"{out}: found no rows, expected those of `fedgem study NAME --out {out}`."
        )
    return "\n".join(parts)


def in_words(rows: Sequence[Row]) -> str:
    """Say who wins what, and where FedGEM loses.

    Parameters
    ----------
    rows : sequence of Row
        The rows of the benchmark.
    """
    sentences = [_setting(rows)]
    for key, what in (("ari_local", "each client on its own"), ("ari_global", "all rows at once")):
        sentences.append(_wins(_means(rows, key), what, _told_number(rows)))
    return " ".join([*sentences, _count(rows)])


def _setting(rows: Sequence[Row]) -> str:
    seeds = {row["seed"] for row in rows}
    methods = {row["method"] for row in rows}
    return (
        f"{len(methods)} methods on {len(_means(rows, 'ari_local'))} data sets, with {len(seeds)} "
        f"seed{'s' * (len(seeds) > 1)}, scored by the adjusted Rand index (ARI) of rows that did "
        "not train."
    )


def _means(rows: Sequence[Row], key: str) -> dict[str, dict[str, float]]:
    """Return the mean of a score by data set and method."""
    return {
        data: {g.method: float(g.values(key).mean()) for g in peers if g.rows}
        for (data, _), peers in groups_of(rows).items()
    }


def _told_number(rows: Sequence[Row]) -> set[str]:
    """Return the methods that are told how many clusters there are."""
    return {r["method"] for r in rows if r["error"] is None and not finds_number(r)}


def _wins(means: Mapping[str, Mapping[str, float]], what: str, told: set[str]) -> str:
    """Say where FedGEM is best, and to whom it loses where it is not."""
    best = {data: max(own, key=lambda m: own[m]) for data, own in means.items() if OURS in own}
    won = [data for data, method in best.items() if method == OURS]
    text = f"Scored on {what}, {OURS} is best on {len(won)} of {len(best)} data sets"
    text += f" ({', '.join(won)})." if won else "."
    lost = [
        f"on {data} to {method}{', which is told K' if method in told else ''} "
        f"({means[data][OURS]:.3f} against {means[data][method]:.3f})"
        for data, method in best.items()
        if method != OURS
    ]
    return f"{text} It loses {_listed(lost)}." if lost else text


def _count(rows: Sequence[Row]) -> str:
    """Say how far the numbers of clusters are off, of methods that have to find them."""
    by_method: dict[str, list[float]] = {}
    for own in _means([row for row in rows if finds_number(row)], "miscount").values():
        for method, miscount in own.items():
            by_method.setdefault(method, []).append(miscount)
    off = sorted((float(np.mean(values)), method) for method, values in by_method.items())
    parts = [f"{value:.1f} ({method})" for value, method in off]
    return (
        "The number of clusters, where a method has to find it, is off by this much on average: "
        f"{_listed(parts)}."
        if parts
        else ""
    )


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


if __name__ == "__main__":
    print(page(Path(sys.argv[1])), end="")

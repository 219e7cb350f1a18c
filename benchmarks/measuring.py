"""What the benchmarks share: rows of a table, and times taken in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.table import Table

table = Table("figure", "measured", "target", "met")


def row(figure: str, measured: float, target: float, unit: str, *, at_least: bool) -> None:
    """Add a figure to the table."""
    met = measured >= target if at_least else measured <= target
    sign = ">=" if at_least else "<="
    table.add_row(
        figure, f"{measured:.3g} {unit}", f"{sign} {target:g} {unit}", "yes" if met else "NO"
    )


def medians(*functions: Callable[[], object], repeats: int) -> list[float]:
    """Time functions in turn, so that a busy machine is busy for all of them."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for spent, function in zip(times, functions, strict=True):
            begin = time.perf_counter()
            function()
            spent.append(time.perf_counter() - begin)
    return [median(spent) for spent in times]


def show(title: str) -> None:
    """Print the table."""
    table.title = title
    Console(width=100).print(table)

"""A study: what is measured, and the tables and figures that are drawn of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedgem.baselines import Entry
from fedgem.studies.cases import Case
from fedgem.studies.program import PROGRAM
from fedgem.studies.rows import Row
from fedgem.studies.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def every(entry: Entry) -> bool:
    """Take every method on the list."""
    return entry is not PROGRAM


@dataclass(frozen=True)
class Measurement:
    """What is measured: methods on cases.

    Attributes
    ----------
    name : str
        What its rows are kept under. Studies of the same measurement share them.
    cases : tuple of Case
        Where methods are compared.
    takes : callable
        Which methods it compares, of those on the list and the published program.
    is_timed : bool
        Whether seconds are what it is about: no task then runs beside another.
    """

    name: str
    cases: tuple[Case, ...]
    takes: Callable[[Entry], bool] = every
    is_timed: bool = False


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes
    ----------
    name : str
        What the command line calls it.
    about : str
        What it shows, in a line.
    measurement : Measurement
        What is measured for it.
    tables : dict of str to callable
        From the rows to each table, by the name of its files.
    figures : dict of str to callable
        From the rows to each figure, likewise; None where there is nothing to draw.
    """

    name: str
    about: str
    measurement: Measurement
    tables: Mapping[str, Callable[[Sequence[Row]], Table]]
    figures: Mapping[str, Callable[[Sequence[Row]], Figure | None]] = field(default_factory=dict)

"""Writing results: tables as CSV, and files and folders that appear whole or not at all."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedgem.errors import InputError

AT_ONCE = 100_000  # lines to hold in memory

Columns = dict[str, np.ndarray[Any, Any]]


def refuse_existing(path: Path, contents: Collection[str] = (), *, force: bool) -> None:
    """Refuse to write where something is, unless forced and it is what fedgem writes there.

    Parameters
    ----------
    path : path
        Where to write.
    contents : collection of str
        What a folder there may hold to be replaced; none, where a file is to be written.
    force : bool
        Whether to replace what is there.
    """
    if not path.exists():
        return
    found = "folder" if path.is_dir() else "file"
    if not force:
        raise InputError(
            f"{path}: found a {found} of that name, expected none; choose another --out, or "
            "replace it with --force."
        )
    if path.is_dir() != bool(contents):
        raise InputError(f"{path}: found a {found}, which --force does not replace here.")
    for part in path.iterdir() if contents else ():
        if part.name not in contents:
            raise InputError(
                f"{path}: found {part.name!r}, which fedgem did not write and --force would "
                "delete; move it, or choose another --out."
            )


@contextmanager
def appearing(path: Path, contents: Collection[str] = (), *, force: bool) -> Iterator[Path]:
    """Give a path to write to; what is there at the end moves to `path` in one step.

    Parameters
    ----------
    path, contents, force
        As in `refuse_existing`.
    """
    refuse_existing(path, contents, force=force)
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as holder:
        new = Path(holder) / "new"
        yield new
        if force and path.is_dir():
            path.rename(Path(holder) / "old")  # deleted with its holder
        new.replace(path)


def lines_of(columns: Columns) -> Iterator[tuple[Any, ...]]:
    """Iterate over the lines of columns of one length, however long."""
    length = len(next(iter(columns.values())))
    for start in range(0, length, AT_ONCE):
        parts = [values[start : start + AT_ONCE].tolist() for values in columns.values()]
        yield from zip(*parts, strict=True)


def write_table(path: Path, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        write_rows(file, header, rows)


def write_rows(file: TextIO, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write CSV to an open file."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)

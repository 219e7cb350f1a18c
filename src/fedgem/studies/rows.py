"""What a study measured: a row for each task, kept on disk from the moment it is there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedgem.errors import StoredFileError
from fedgem.writing import appearing

Row = dict[str, Any]
SCHEMA = pa.schema(
    [
        ("data", pa.string()),
        ("x", pa.float64()),  # what a study varies
        ("method", pa.string()),
        ("seed", pa.int64()),
        ("is_federated", pa.bool_()),
        ("knows", pa.string()),  # what the method was told
        ("n_classes", pa.int64()),
        ("n_clients", pa.int64()),
        ("n_clusters", pa.int64()),
        ("miscount", pa.int64()),  # |n_clusters - n_classes|
        ("ari_local", pa.float64()),
        ("ari_global", pa.float64()),
        ("silhouette_local", pa.float64()),
        ("silhouette_global", pa.float64()),
        ("seconds", pa.float64()),
        ("n_rounds", pa.int64()),
        ("bytes_up", pa.int64()),
        ("bytes_down", pa.int64()),
        ("error", pa.string()),
        ("versions", pa.string()),
    ]
)


def key(row: Row) -> tuple[Any, ...]:
    """Return what tells a row from others: its task."""
    return row["data"], row["x"], row["method"], row["seed"]


def journal_of(path: Path) -> Path:
    """Return where the rows of a measurement that goes on are, a line of JSON each."""
    return path.with_suffix(".jsonl")


def read(path: Path) -> list[Row]:
    """Return all rows of a measurement, of each task the latest; none where there is nothing."""
    try:
        rows = pq.read_table(path).to_pylist() if path.exists() else []
    except pa.ArrowInvalid as error:
        raise StoredFileError(
            f"{path}: found no Parquet file, expected rows of a study."
        ) from error
    if journal_of(path).exists():
        # A run that was killed may have left half a line at the end, or where the next one began.
        for line in journal_of(path).read_text("utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    rows = [{name: row.get(name) for name in SCHEMA.names} for row in rows]
    return list({key(row): row for row in rows}.values())


def append(path: Path, row: Row) -> None:
    """Add a row to those of a measurement."""
    with journal_of(path).open("a", encoding="utf-8") as file:
        # The line break comes first: half a line before it spoils nothing but itself.
        file.write("\n" + json.dumps(row))


def consolidate(path: Path, rows: Iterable[Row]) -> None:
    """Write all rows of a measurement to one Parquet file, whole or not at all."""
    with appearing(path, force=True) as new:
        pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), new)
    journal_of(path).unlink(missing_ok=True)

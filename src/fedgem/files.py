"""Reading a client's rows from a file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from numpy.lib.format import open_memmap
from numpy.lib.npyio import NpzFile

from fedgem.errors import InputError
from fedgem.rows import Rows, block_length
from fedgem.typing import Array

BUFFER = 2**16  # bytes of a Parquet column to read at a time
SUFFIXES = (".csv", ".parquet", ".npy", ".npz", ".feather")


@dataclass(frozen=True)
class Source:
    """What a file holds.

    Attributes
    ----------
    name : str
        The file's name without its ending: the client's name.
    rows : Rows
        The features.
    feature_names : tuple of str, optional
        Their names, where the file has any.
    ids : array of shape (N,), optional
        The identifier of each row.
    """

    name: str
    rows: Rows
    feature_names: tuple[str, ...] | None
    ids: np.ndarray[Any, Any] | None


def open_source(
    path: str | Path, columns: Sequence[str] | None = None, id_column: str | None = None
) -> Source:
    r"""Open a CSV, Parquet, Feather, NPY or NPZ file.

    NPY files are memory-mapped and Parquet files are read in blocks whenever they are used, so
    that both may be larger than memory.

    Parameters
    ----------
    path : path
        The file.
    columns : sequence of str, optional
        The features to use, in this order; all columns but `id_column` by default.
    id_column : str, optional
        A column that names the rows and is no feature.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "plant-1.csv"
    >>> _ = path.write_text("rms,kurtosis\n1,3\n2,4\n")
    >>> source = open_source(path)
    >>> source.name, source.feature_names, source.rows.shape
    ('plant-1', ('rms', 'kurtosis'), (2, 2))
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if not path.is_file():
        found = "a folder, expected a file" if path.is_dir() else "no such file"
        raise InputError(f"{path}: found {found}.")
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path}: found a file of type {suffix or 'unknown'!r}, "
            f"expected one of {', '.join(SUFFIXES)}."
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path}: found an empty file, expected rows of numbers.")
    with reading(path):
        if suffix in (".npy", ".npz"):
            return _numpy_source(path, columns, id_column)
        if suffix == ".parquet":
            return _parquet_source(path, columns, id_column)
        table = pyarrow.csv.read_csv(path) if suffix == ".csv" else pyarrow.feather.read_table(path)
        names = _feature_names(path, table.schema, columns, id_column, table)
        if suffix == ".csv" and _look_like_values(table.column_names):
            raise InputError(
                f"{path}: found numbers in the first line, expected the names of the columns."
            )
        ids = None if id_column is None else table.column(id_column).to_numpy()
        return Source(path.stem, Rows.from_array(_matrix(table.select(names))), tuple(names), ids)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in one sentence what keeps a file from being read."""
    try:
        yield
    except InputError:
        raise
    except (
        *(OSError, EOFError, ValueError, RuntimeError),
        *(pa.ArrowException, zipfile.BadZipFile, zlib.error),
    ) as error:
        raise InputError(f"{path}: cannot be read: {_first_line(error)}") from error


def _numpy_source(path: Path, columns: Sequence[str] | None, id_column: str | None) -> Source:
    if columns or id_column:
        raise InputError(f"{path}: has no named columns; --columns and --id-column need them.")
    if path.suffix.lower() == ".npz":
        with path.open("rb") as file, NpzFile(file, allow_pickle=False) as archive:
            if len(archive.files) != 1:
                raise InputError(
                    f"{path}: found {len(archive.files)} arrays ({', '.join(archive.files)}), "
                    "expected just one."
                )
            X = np.asarray(archive[archive.files[0]])
    else:
        X = open_memmap(path, mode="r")
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise InputError(
            f"{path}: found an array of {X.ndim} dimensions holding {X.dtype}, "
            "expected 2 dimensions of numbers."
        )
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    return Source(path.stem, Rows.from_array(X), None, None)


def _parquet_source(path: Path, columns: Sequence[str] | None, id_column: str | None) -> Source:
    file = pyarrow.parquet.ParquetFile(path)
    names = _feature_names(path, file.schema_arrow, columns, id_column)
    length = block_length(len(names))

    def read() -> Iterator[Array]:
        """Cut the file's batches, which end where row groups end, into blocks of one length."""
        waiting = None
        with reading(path):
            # By default pyarrow buffers all row groups ahead, which is the whole file.
            file = pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)
            for batch in file.iter_batches(length, columns=names, use_threads=False):
                part = _matrix(pa.Table.from_batches([batch]).select(names))
                waiting = part if waiting is None else np.concatenate([waiting, part])
                while len(waiting) >= length:
                    yield waiting[:length]
                    waiting = waiting[length:]
        if waiting is not None and len(waiting):
            yield waiting

    types = {file.schema_arrow.field(name).type for name in names}
    dtype: np.dtype[np.floating[Any]] = np.dtype(
        np.float32 if types == {pa.float32()} else np.float64
    )
    rows = Rows((file.metadata.num_rows, len(names)), dtype, read)
    ids = None if id_column is None else file.read([id_column]).column(0).to_numpy()
    return Source(path.stem, rows, tuple(names), ids)


def _feature_names(
    path: Path,
    schema: pa.Schema,
    columns: Sequence[str] | None,
    id_column: str | None,
    table: pa.Table | None = None,
) -> list[str]:
    """Check the wanted columns against the file's and return the features."""
    if len(set(schema.names)) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise InputError(f"{path}: found two columns called {twice!r}, expected different names.")
    for name in [*(columns or []), *([id_column] if id_column else [])]:
        if name not in schema.names:
            raise InputError(
                f"{path}: found no column {name!r} among {', '.join(map(repr, schema.names))}."
            )
    if columns and len(set(columns)) < len(columns):
        raise InputError(f"{path}: found a column twice among {', '.join(columns)}.")
    names = list(columns) if columns else [name for name in schema.names if name != id_column]
    if not names:
        raise InputError(f"{path}: found no feature columns, expected at least one.")
    for name in names:
        if not is_number(schema.field(name).type):
            hint = "; leave it out with --columns, or call it --id-column if it names the rows"
            found = _in_words(schema.field(name).type)
            if found == "text" and table is not None:
                found += where_text(table.column(name).to_pylist())
            raise InputError(
                f"{path}, column {name!r}: found {found}, expected "
                f"numbers{'' if columns else hint}."
            )
    return names


def is_number(kind: pa.DataType) -> bool:
    """Tell whether a column of this type can be a feature (an all-empty one counts as missing)."""
    types = pa.types
    return any(
        test(kind)
        for test in (types.is_floating, types.is_integer, types.is_boolean, types.is_decimal)
    ) or types.is_null(kind)


def where_text(values: Iterable[Any]) -> str:
    """Say where a column of text first holds something that is no number; "" if it is all numbers.

    Examples
    --------
    >>> where_text(["1.5", None, "hot"])
    " ('hot' in row 2)"
    """
    for row, value in enumerate(values):
        if isinstance(value, str):
            try:
                float(value)
            except ValueError:
                shown = value if len(value) <= 20 else f"{value[:20]}..."
                return f" ({str(shown)!r} in row {row})"
    return ""


def _look_like_values(names: Sequence[str]) -> bool:
    """Tell numbers that are a row from numbers that name columns, as frequencies do: in order."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return numbers != sorted(set(numbers))


def _in_words(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind):
        return "text"
    return "dates" if types.is_temporal(kind) else f"{kind} values"


def _matrix(table: pa.Table) -> Array:
    """Return the columns side by side: float32 if all of them are, float64 otherwise."""
    types = {field.type for field in table.schema}
    dtype = np.float32 if types == {pa.float32()} else np.float64
    matrix = np.empty(table.shape, dtype)
    for j, column in enumerate(table.columns):
        matrix[:, j] = column.cast(pa.from_numpy_dtype(dtype), safe=False).to_numpy()
    return matrix


def _first_line(error: Exception) -> str:
    """Return what an error says, short and printable whatever is in the file."""
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return "".join(c if c.isprintable() else "?" for c in line[:200])

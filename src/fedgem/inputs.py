"""What users hand to `fit`, turned into clients' rows, and all that can be wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array

from fedgem.errors import InputError
from fedgem.files import Source, open_source, where_text
from fedgem.rows import Rows
from fedgem.typing import Array, IntArray

# Squares of larger values overflow, and with them every distance.
LARGEST = {np.dtype(np.float64): 1e150, np.dtype(np.float32): 1e15}


@dataclass(frozen=True)
class Inputs:
    """The clients' rows, checked.

    Attributes
    ----------
    rows : dict of str to Rows
        By client.
    feature_names : tuple of str, optional
        The same at every client.
    dtype : numpy dtype
        float32 if it is every client's, float64 otherwise.
    positions : dict of str to array, optional
        Where each client's rows stand in the one array that was given.
    """

    rows: dict[str, Rows]
    feature_names: tuple[str, ...] | None
    dtype: np.dtype[np.floating[Any]]
    positions: dict[str, IntArray] | None = None


def collect(X: Any, ids: Any = None) -> Inputs:
    """Turn what `fit` takes into clients' rows.

    Parameters
    ----------
    X : list or dict of arrays, data frames or paths, or one array or data frame
        The rows, a client each, or all in one.
    ids : array of shape (N,), optional
        With one array, the client of each row; without it, all rows are one client's.

    Examples
    --------
    >>> list(collect({"a": [[1.0], [2.0]], "b": [[3.0]]}).rows)
    ['a', 'b']
    >>> collect([[1.0], [2.0], [3.0]], ids=["b", "a", "b"]).rows["b"].shape
    (2, 1)
    """
    if isinstance(X, (str, os.PathLike)):
        X = [X]
    # Some sparse arrays are mappings, too; `to_array` refuses them.
    if (isinstance(X, Mapping) and not issparse(X)) or _is_list_of_clients(X):
        if ids is not None:
            raise InputError("clients= names the client of each row of one array; found several.")
        items = X.items() if isinstance(X, Mapping) else _named(X)
        opened: dict[str, tuple[Rows, tuple[str, ...] | None]] = {}
        for key, value in items:
            name = str(key)
            if name in opened:
                raise InputError(f"Found two clients called {name!r}, expected different names.")
            opened[name] = _open_client(value, name)
        return check(opened)
    array, names = to_array(X, "0")
    if ids is None:
        inputs = check({"0": (Rows.from_array(array), names)})
        return Inputs(inputs.rows, names, inputs.dtype, {"0": np.arange(len(array))})
    ids = _checked_ids(ids, len(array))
    positions = {str(key): np.flatnonzero(ids == key) for key in np.unique(ids)}
    inputs = check(
        {name: (Rows.from_array(array[where]), names) for name, where in positions.items()}
    )
    return Inputs(inputs.rows, names, inputs.dtype, positions)


def open_rows(value: Any, name: str) -> tuple[Rows, tuple[str, ...] | None]:
    """Open one client's rows: an array, a data frame, a file's path, or a file already open."""
    if isinstance(value, (str, os.PathLike)):
        value = open_source(os.fspath(value))
    if isinstance(value, Source):
        return value.rows, value.feature_names
    array, feature_names = to_array(value, name)
    return Rows.from_array(array), feature_names


def _checked_ids(given: Any, n_rows: int) -> np.ndarray[Any, Any]:
    """Return the client of each row as an array of names or of numbers, none missing."""
    # NumPy would make text of the gaps in a list.
    ids: np.ndarray[Any, Any] = np.asarray(given, None if hasattr(given, "dtype") else object)
    if ids.shape != (n_rows,):
        raise InputError(
            f"clients= has shape {ids.shape}, expected one client for each of {n_rows} rows."
        )
    is_object = ids.dtype == object
    if is_object:
        named = np.array([isinstance(i, str) or (isinstance(i, Real) and i == i) for i in ids])
    else:
        named = ids == ids  # unlike NaN
    if not named.all():
        i = int(named.argmin())
        raise InputError(f"clients=, row {i}: found {ids[i]!s}, expected the name of a client.")
    if not is_object:
        return ids
    return ids.astype(str) if any(isinstance(i, str) for i in ids) else np.array(ids.tolist())


def _open_client(value: Any, name: str) -> tuple[Rows, tuple[str, ...] | None]:
    """Open the rows of one client of several, and name it where they are no rows at all."""
    try:
        return open_rows(value, name)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        shape = f" of shape {value.shape}" if hasattr(value, "shape") else ""
        holding = f" holding {value.dtype}" if hasattr(value, "dtype") else ""
        raise InputError(
            f"Client {name!r}: found {type(value).__name__}{shape}{holding}, expected a dense "
            "array of numbers with at least one row and one column."
        ) from error


def to_array(X: Any, name: str) -> tuple[Array, tuple[str, ...] | None]:
    """Return an array or a data frame as a matrix of floats, and its column names."""
    if issparse(X):
        raise TypeError(
            "Sparse data was passed, but dense data is required. Use '.toarray()' to convert."
        )
    names = None
    columns = _columns(X)
    if columns is not None:
        for column, values in columns:
            if values.dtype.kind not in "fiub":
                raise InputError(
                    f"Client {name!r}, column {column!r}: found {_kind(values)}, expected numbers."
                )
        X = np.column_stack([values for _, values in columns]) if columns else np.empty((len(X), 0))
        names = _feature_names([column for column, _ in columns], name)
    elif isinstance(X, np.ndarray) and X.dtype.kind in "USmM":
        raise InputError(f"Client {name!r}: found {_kind(X)}, expected numbers.")
    elif isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 2:
        for j, values in enumerate(X.T):
            if any(isinstance(value, str) for value in values):
                found = f"text{where_text(values)}"
                raise InputError(f"Client {name!r}, column {j}: found {found}, expected numbers.")
    with np.errstate(over="ignore"):
        array = check_array(
            X, dtype=[np.float64, np.float32], ensure_all_finite=False, estimator="FedGEM"
        )
    return array, names


def check(opened: Mapping[str, tuple[Rows, tuple[str, ...] | None]]) -> Inputs:
    """Check that clients agree on their columns and hold nothing but finite numbers."""
    if not opened:
        raise InputError("Found no clients, expected at least one.")
    first, (first_rows, first_names) = next(iter(opened.items()))
    for name, (rows, names) in opened.items():
        _check_columns(name, rows, names, first, first_rows, first_names)
        _check_values(name, rows, names)
    dtypes = [rows.dtype for rows, _ in opened.values()]
    return Inputs(
        {name: rows for name, (rows, _) in opened.items()}, first_names, np.result_type(*dtypes)
    )


def _check_columns(
    name: str,
    rows: Rows,
    names: tuple[str, ...] | None,
    first: str,
    first_rows: Rows,
    first_names: tuple[str, ...] | None,
) -> None:
    if rows.shape[1] != first_rows.shape[1]:
        differing = ""
        if names and first_names:
            different = sorted(set(names) ^ set(first_names))
            differing = f" (only one of them has {', '.join(map(repr, different))})"
        raise InputError(
            f"Client {name!r}: found {rows.shape[1]} columns, expected the "
            f"{first_rows.shape[1]} of client {first!r}{differing}."
        )
    if names and first_names and names != first_names:
        j = next(j for j in range(len(names)) if names[j] != first_names[j])
        same = " (the same columns in another order)" if set(names) == set(first_names) else ""
        raise InputError(
            f"Client {name!r}: found column {j + 1} to be {names[j]!r}, expected "
            f"{first_names[j]!r} as at client {first!r}{same}."
        )


def _check_values(name: str, rows: Rows, names: tuple[str, ...] | None) -> None:
    if rows.are_elsewhere:  # their client has checked them
        return
    if rows.shape[0] == 0:
        raise InputError(f"Client {name!r}: found no rows, expected at least one.")
    if rows.shape[1] == 0:
        raise InputError(f"Client {name!r}: found no columns, expected at least one.")
    largest = LARGEST[rows.dtype]
    start = 0
    for block in rows.blocks():
        good = np.abs(block) <= largest  # NaN compares as False
        if not good.all():
            i, j = np.argwhere(~good)[0]
            value = block[i, j]
            what = "NaN" if np.isnan(value) else "inf" if np.isinf(value) else f"{value:g}"
            column = names[j] if names else int(j)
            raise InputError(
                f"Client {name!r}, column {column!r}, row {start + i}: found {what}, expected a "
                f"finite number (no NaN, no inf, nothing beyond {largest:g})."
            )
        start += len(block)


def _named(X: Sequence[Any]) -> list[tuple[str, Any]]:
    """Name the clients of a list: files by their names, the rest by their positions."""
    return [
        (Path(value).stem, value) if isinstance(value, (str, os.PathLike)) else (str(g), value)
        for g, value in enumerate(X)
    ]


def _is_list_of_clients(X: Any) -> bool:
    if not isinstance(X, (list, tuple)):
        return False
    return not X or any(
        isinstance(value, (str, os.PathLike))
        or _columns(value) is not None
        or getattr(value, "ndim", None) == 2
        or (isinstance(value, (list, tuple)) and value and isinstance(value[0], (list, tuple)))
        for value in X
    )


def _columns(X: Any) -> list[tuple[Any, np.ndarray[Any, Any]]] | None:
    """Return the columns of a pandas, polars or PyArrow frame; None for anything else."""
    if hasattr(X, "column_names"):  # PyArrow
        columns = [X.column(j).to_numpy(zero_copy_only=False) for j in range(X.num_columns)]
        return list(zip(X.column_names, map(_as_numbers, columns), strict=True))
    if hasattr(X, "iloc") and hasattr(X, "columns"):  # pandas
        return [(c, _as_numbers(X.iloc[:, j].to_numpy())) for j, c in enumerate(X.columns)]
    if hasattr(X, "get_columns"):  # polars
        return [(s.name, _as_numbers(s.to_numpy())) for s in X.get_columns()]
    return None


def _as_numbers(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a column as floats where it holds numbers and gaps as objects: decimals, say."""
    if values.dtype == object and all(map(_is_number_or_gap, values)):
        return values.astype(np.float64)
    return values


def _is_number_or_gap(value: Any) -> bool:
    return value is None or isinstance(value, (Real, Decimal))


def _feature_names(columns: Sequence[Any], name: str) -> tuple[str, ...] | None:
    """Return the names of columns, if names they are: numbers, as in scikit-learn, are none."""
    if not all(isinstance(column, str) for column in columns):
        return None
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise InputError(
            f"Client {name!r}: found two columns called {twice!r}, expected different names."
        )
    return tuple(columns)


def _kind(values: np.ndarray[Any, Any]) -> str:
    if values.dtype.kind in "mM":
        return "dates"
    if values.dtype.kind in "UST":
        return f"text{where_text(values) if values.ndim == 1 else ''}"
    if values.dtype == object:
        kind = type(next(value for value in values if not _is_number_or_gap(value)))
        return f"text{where_text(values)}" if issubclass(kind, str) else f"{kind.__name__} values"
    return str(values.dtype)

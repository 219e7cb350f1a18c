import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

from fedgem import FederatedScaler, FedGEM, InputError
from fedgem.inputs import collect
from models import collaborative

NAMES = ["rms", "kurtosis"]
X = np.random.default_rng(0).normal(size=(12, 2))
FRAME = pd.DataFrame(X, columns=NAMES)
IDS = ["b", "a", "c"] * 4


def read(rows):
    return np.concatenate(list(rows.blocks()))


def refused(X, *words, error=InputError, **options):
    """Check that `fit` refuses its input in one short line; return nothing half-done."""
    for model in (FedGEM(), FederatedScaler()):
        with pytest.raises(error) as caught:
            model.fit(X, **options)
        message = str(caught.value)
        assert not [name for name in vars(model) if name.endswith("_")]
        for word in words:
            assert word in message
        if error is InputError:
            assert len(message.splitlines()) == 1
            assert len(message) < 200
            assert "found" in message.lower() or "has shape" in message


FRAMES = {
    "pandas": FRAME,
    "pandas, nullable": FRAME.astype("Float64"),
    "pandas, Arrow": FRAME.astype("double[pyarrow]"),
    "pandas, objects": FRAME.astype(object),
    "polars": pl.DataFrame(X, schema=NAMES),
    "PyArrow table": pa.table(dict(zip(NAMES, X.T, strict=True))),
    "PyArrow batch": pa.record_batch(dict(zip(NAMES, X.T, strict=True))),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_every_frame_gives_the_same_rows_and_names(frame):
    inputs = collect({"plant": frame})
    assert inputs.feature_names == tuple(NAMES)
    assert_array_equal(read(inputs.rows["plant"]), X, strict=True)
    assert_array_equal(collect(frame, IDS).positions["a"], range(1, 12, 3))


@pytest.mark.parametrize(
    "columns", [[0, 1], [2024, 2025], [("a", 1), ("b", 2)], ["rms", 1]], ids=str
)
def test_columns_without_names_have_none(columns):
    frame = pd.DataFrame(X)
    frame.columns = columns
    assert collect(frame).feature_names is None


GAPLESS = {
    "whole numbers": [1, 2],
    "decimals": [Decimal("1.0"), Decimal("2.0")],
    "booleans": [True, False],
}


@pytest.mark.parametrize("values", GAPLESS.values(), ids=GAPLESS)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table, pa.record_batch])
def test_numbers_of_any_kind_become_floats(frame, values):
    assert_array_equal(
        read(collect(frame({"a": values})).rows["0"]), np.array([values], float).T, strict=True
    )


@pytest.mark.parametrize("values", [[1, None], [1.0, None], [True, None], [Decimal(1), None]])
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table, pa.record_batch])
def test_gaps_are_found(frame, values):
    refused(
        {"plant": frame({"a": values})},
        "Client 'plant', column 'a', row 1: found NaN, expected a finite number",
    )


def test_lists_are_numbered_and_dicts_keep_their_names():
    assert list(collect([X, FRAME.to_numpy()]).rows) == ["0", "1"]
    assert list(collect((X.tolist(), X)).rows) == ["0", "1"]
    assert list(collect({"z": X, 7: X, "a": X}).rows) == ["z", "7", "a"]


def test_files_are_named_after_themselves(tmp_path):
    for name in ("north", "south"):
        FRAME.to_parquet(tmp_path / f"{name}.parquet")
    paths = sorted(tmp_path.iterdir())
    inputs = collect([str(path) for path in paths])
    assert list(inputs.rows) == ["north", "south"]
    assert inputs.feature_names == tuple(NAMES)
    assert list(collect({"n": paths[0], "s": X}).rows) == ["n", "s"]
    assert list(collect(paths[0]).rows) == ["north"]


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (IDS, ["a", "b", "c"]),
        (np.array([10, 9, 100] * 4), ["9", "10", "100"]),
        ([10, 9, 100] * 4, ["9", "10", "100"]),
        ([1, "a", 2.5] * 4, ["1", "2.5", "a"]),
        (np.array(IDS, object), ["a", "b", "c"]),
        (pd.Series(IDS, dtype="category"), ["a", "b", "c"]),
        (pl.Series(IDS), ["a", "b", "c"]),
        (pa.chunked_array([IDS]), ["a", "b", "c"]),
    ],
)
def test_ids_split_the_rows(ids, names):
    inputs = collect(X, ids)
    assert list(inputs.rows) == names
    for name, rows in inputs.rows.items():
        mine = [str(key) == name for key in list(np.asarray(ids))]
        assert_array_equal(inputs.positions[name], np.flatnonzero(mine))
        assert_array_equal(read(rows), X[mine])


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["f4", "f4"], "f4"),
        (["f4", "f8"], "f8"),
        (["f8", "f8"], "f8"),
        (["f4", "i4"], "f8"),
        (["f2", "f2"], "f8"),
        (["i8", "?"], "f8"),
        (["g", ">f8"], "f8"),
    ],
)
def test_precision_is_float32_where_all_is(dtypes, expected):
    assert collect([X.astype(dtype) for dtype in dtypes]).dtype == np.dtype(expected)


@pytest.mark.parametrize(
    ("dtype", "value", "found"),
    [
        (np.float64, np.nan, "NaN"),
        (np.float64, np.inf, "inf"),
        (np.float64, 1e155, "1e+155"),
        (np.float32, np.nan, "NaN"),
        (np.float32, -np.inf, "inf"),
        (np.float32, -1e38, "-1e+38"),
    ],
)
def test_a_value_that_is_not_finite_is_named(dtype, value, found):
    Y = X.astype(dtype)
    Y[5, 1] = value
    words = f"row 5: found {found}, expected a finite number"
    refused(Y, "column 1", words)
    refused([X, Y], "Client '1', column 1", words)
    refused({"plant": pd.DataFrame(Y, columns=NAMES)}, "Client 'plant', column 'kurtosis'", words)
    refused(Y, "Client 'b', column 1, row 2", clients=["a"] * 3 + ["b"] * 9)


BAD_COLUMNS = {
    "text": ["x", "y"],
    "numbers as text": ["1", "2"],
    "text and gaps": [None, "y"],
    "dates": [datetime.datetime(2024, 1, 31)] * 2,
}
FOUND = {
    "text": "text ('x' in row 0)",
    "numbers as text": "text",
    "text and gaps": "text ('y' in row 1)",
    "dates": "dates",
}


@pytest.mark.parametrize(("kind", "values"), BAD_COLUMNS.items(), ids=BAD_COLUMNS)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_column_without_numbers_is_named(frame, kind, values):
    found = FOUND[kind]
    words = f"Client 'plant', column 'b': found {found}, expected numbers"
    refused({"plant": frame({"a": [1.0, 2.0], "b": values})}, words)


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pd.to_datetime(["2024-01-31"], utc=True), "Timestamp values"),
        ([1j], "complex128"),
        ([{}], "dict values"),
        (pd.Series([True, None], dtype="boolean"), "NAType values"),
        (pd.Series(["x"], dtype="category"), "text ('x' in row 0)"),
    ],
)
def test_a_column_of_something_else_is_named(column, found):
    refused({"plant": pd.DataFrame({"a": column})}, f"column 'a': found {found}, expected numbers")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (FRAME[["rms"]], "found 1 columns, expected the 2 of client 'a' (only one of them has"),
        (FRAME.assign(peak=1.0), "(only one of them has 'peak')"),
        (X[:, :1], "Client 'b': found 1 columns, expected the 2 of client 'a'."),
        (FRAME[NAMES[::-1]], "found column 1 to be 'kurtosis', expected 'rms' as at client 'a'"),
        (FRAME[NAMES[::-1]], "(the same columns in another order)"),
        (
            FRAME.rename(columns={"kurtosis": "peak"}),
            "found column 2 to be 'peak', expected 'kurtosis'",
        ),
    ],
)
def test_clients_must_have_the_same_columns(other, words):
    refused({"a": FRAME, "b": other}, "Client 'b'", words)


def test_duplicate_columns_are_refused():
    twice = pd.DataFrame(X, columns=["rms", "rms"])
    refused({"plant": twice}, "Client 'plant': found two columns called 'rms'")


def test_duplicate_clients_are_refused(tmp_path):
    refused({1: X, "1": X}, "Found two clients called '1', expected different names.")
    paths = [tmp_path / folder / "plant.npy" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        np.save(path, X)
    refused(paths, "Found two clients called 'plant'")


@pytest.mark.parametrize("nobody", [[], (), {}])
def test_nobody_is_refused(nobody):
    refused(nobody, "Found no clients, expected at least one.")


NO_ROWS = {
    "empty": (np.empty((0, 2)), "ndarray of shape (0, 2) holding float64"),
    "empty frame": (FRAME[:0], "DataFrame of shape (0, 2)"),
    "no columns": (np.empty((3, 0)), "ndarray of shape (3, 0)"),
    "1-D": (X[:, 0], "ndarray of shape (12,)"),
    "3-D": (X[None], "ndarray of shape (1, 12, 2)"),
    "sparse": (scipy.sparse.csr_array(X), "csr_array of shape (12, 2)"),
    "sparse mapping": (scipy.sparse.dok_array(X), "dok_array of shape (12, 2)"),
    "complex": (X + 1j, "ndarray of shape (12, 2) holding complex128"),
    "objects": (np.array([[{}, 1]]), "ndarray of shape (1, 2) holding object"),
    "ragged": ([[1.0, 2.0], [3.0]], "list"),
    "nothing": (None, "NoneType"),
    "series": (FRAME["rms"], "Series of shape (12,)"),
    "too long": ([[10**400, 1]], "list"),
}


@pytest.mark.parametrize(("bad", "found"), NO_ROWS.values(), ids=NO_ROWS)
def test_a_client_without_a_matrix_is_named(bad, found):
    refused({"a": X, "b": bad}, f"Client 'b': found {found}", "expected a dense array of numbers")


@pytest.mark.parametrize(
    ("bad", "found"), [(X.astype(str), "text"), (np.array([["2024"]], "M8[Y]"), "dates")]
)
def test_an_array_of_no_numbers_is_refused(bad, found):
    refused({"a": bad}, f"Client 'a': found {found}, expected numbers.")
    refused(bad, f"found {found}, expected numbers.")


def test_text_among_numbers_is_named():
    refused(
        {"a": np.array([[1, 2], [3, "hot"]], dtype=object)},
        "Client 'a', column 1: found text ('hot' in row 1), expected numbers.",
    )


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (np.empty((0, 2)), ValueError, "0 sample(s)"),
        (np.empty((3, 0)), ValueError, "0 feature(s)"),
        (X[:, 0], ValueError, "Reshape your data"),
        (X[None], ValueError, "dim 3"),
        (scipy.sparse.csr_array(X), TypeError, "Sparse data was passed"),
        (scipy.sparse.dok_array(X), TypeError, "Sparse data was passed"),
        (X + 1j, ValueError, "Complex data not supported"),
        (np.array([[{}]]), TypeError, "argument must be a string or a real number"),
    ],
)
def test_one_array_is_refused_as_scikit_learn_does(bad, error, words):
    refused(bad, words, error=error)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a"] * 11, "clients= has shape (11,), expected one client for each of 12 rows."),
        ([], "clients= has shape (0,)"),
        ("a", "clients= has shape ()"),
        (X, "clients= has shape (12, 2)"),
        ([pd.NA, *IDS[1:]], "clients=, row 0: found <NA>"),
        ([None, *IDS[1:]], "clients=, row 0: found None, expected the name of a client."),
        ([*IDS[1:], np.nan], "clients=, row 11: found nan"),
        (np.array([*range(11), np.nan]), "clients=, row 11: found nan"),
        (np.array([*IDS[1:], np.nan], object), "clients=, row 11: found nan"),
    ],
)
def test_ids_must_name_the_client_of_each_row(ids, words):
    refused(X, words, clients=ids)


@pytest.mark.parametrize("several", [[X, X], {"a": X}])
def test_ids_are_for_one_array(several):
    refused(several, "found several", clients=IDS)


K_EXPECTED = "n_local_components: found {}, expected a whole number from 1."
BAD_PARAMETERS = [
    ({"n_local_components": 0}, "Client 'a', " + K_EXPECTED.format(0)),
    ({"n_local_components": -1}, K_EXPECTED.format(-1)),
    ({"n_local_components": 2.5}, K_EXPECTED.format(2.5)),
    ({"n_local_components": True}, K_EXPECTED.format(True)),
    ({"n_local_components": np.nan}, K_EXPECTED.format("nan")),
    ({"n_local_components": [2, 0]}, "Client 'b', " + K_EXPECTED.format(0)),
    ({"n_local_components": {"a": 1, "b": 1.5}}, "Client 'b', " + K_EXPECTED.format(1.5)),
    (
        {"n_local_components": [2, 2, 2]},
        "n_local_components: found 3 values, expected one for each client",
    ),
    ({"n_local_components": {"a": 1}}, "found ['a'], expected a value for client 'b'"),
    ({"n_local_components": "2"}, "found '2', expected a number, or one for each client"),
    ({"n_local_components": "auto"}, "client, where upsilon or final_radius is given."),
    ({"n_local_components": None}, "n_local_components: found None"),
    ({"n_local_components": [2, 13]}, "Client 'b': found 12 rows (n_samples=12), expected"),
    ({"weights": [[0.5, 0.5]]}, "weights: found 1 values, expected one for each client, 2 in all"),
    ({"weights": [[0.5, 0.5], [1.0]]}, "Client 'b', weights: found [1.0], expected 2 numbers"),
    ({"weights": [[0.5, 0.6]] * 2}, "expected 2 numbers from 0 that add up to 1"),
    ({"weights": [[-0.5, 1.5]] * 2}, "expected 2 numbers from 0 that add up to 1"),
    ({"weights": [[np.nan, 1]] * 2}, "expected 2 numbers from 0 that add up to 1"),
    ({"weights": [["x", 1]] * 2}, "expected 2 numbers from 0 that add up to 1"),
    ({"final_radius": -1.0}, "Client 'a', final_radius: found -1.0, expected one number from 0"),
    ({"final_radius": [1.0, np.inf]}, "Client 'b', final_radius: found inf"),
    ({"final_radius": [1.0, "x"]}, "Client 'b', final_radius: found 'x'"),
    ({"final_radius": {"a": 1, "b": [1, 2, 3]}}, "or one for each of 2 components"),
    ({"final_radius": np.inf}, "final_radius: found inf"),
    ({"final_radius": [1.0]}, "final_radius: found 1 values"),
    ({"upsilon": -1}, "upsilon: found -1, expected None, a number from 0, or 'auto'."),
    ({"upsilon": "best"}, "upsilon: found 'best'"),
    ({"upsilon": np.inf}, "upsilon: found inf"),
    ({"max_iter": -1}, "max_iter: found -1, expected a whole number from 0."),
    ({"max_iter": 2.0}, "max_iter: found 2.0"),
    ({"n_init": 0}, "n_init: found 0, expected a whole number from 1."),
    ({"n_local_steps": True}, "n_local_steps: found True"),
    ({"tol": -1e-9}, "tol: found -1e-09, expected a number from 0."),
    ({"tol": np.nan}, "tol: found nan"),
    ({"scale": "yes"}, "scale: found 'yes', expected True or False."),
    ({"cannot_link": None}, "cannot_link: found None, expected True or False."),
    ({"learn_weights": 1}, "learn_weights: found 1, expected True or False."),
    ({"covariance_type": "round"}, "covariance_type: found 'round', expected one of full, tied"),
]
# What makes sense only where components join by their uncertainty sets.
WITHOUT = "where neither upsilon nor final_radius is given."
BAD_SHARING = [
    ({"weights": [[0.5, 0.5]] * 2}, f"[0.5, 0.5]], expected None {WITHOUT}"),
    ({"learn_weights": False}, f"learn_weights: found False, expected True {WITHOUT}"),
    ({"n_local_steps": 2}, f"n_local_steps: found 2, expected 1 {WITHOUT}"),
    ({"max_iter": 0}, f"max_iter: found 0, expected a whole number from 1 {WITHOUT}"),
    ({"cannot_link": False}, f"cannot_link: found False, expected True {WITHOUT}"),
    ({"n_local_components": "2"}, "found '2', expected 'auto', a number, or one for each client"),
    ({"n_local_components": [2, 13]}, "Client 'b': found 12 rows (n_samples=12), expected"),
]


@pytest.mark.parametrize(
    ("model", "params", "words"),
    [
        *((collaborative, *bad) for bad in BAD_PARAMETERS),
        *((FedGEM, *bad) for bad in BAD_SHARING),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_bad_parameter_is_named(tmp_path, model, params, words):
    with pytest.raises(InputError) as caught:
        model(**params).fit({"a": X, "b": X}, checkpoint=tmp_path / "run")
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6])
@pytest.mark.parametrize("n_rows", [5, 20_000])
def test_a_constant_column_cannot_be_scaled(value, n_rows):
    clients = [FRAME.sample(n_rows, replace=True, random_state=g) for g in range(2)]
    clients = [frame.assign(speed=value) for frame in clients]
    with pytest.raises(InputError) as caught:
        FedGEM(scale=True).fit(clients)
    assert str(caught.value) == (
        f"All clients, column 'speed': found the value {value:g} in every row, expected a column "
        "that varies. Leave it out."
    )
    for model in (FedGEM(), collaborative(upsilon=1.0)):  # where it does no harm
        model.fit([frame[:5] for frame in clients])

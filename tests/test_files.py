import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from numpy.testing import assert_array_equal

from fedgem import InputError, rows
from fedgem.files import SUFFIXES, open_source
from fedgem.inputs import collect

NAMES = ("rms", "kurtosis", "peak")
X = np.random.default_rng(0).normal(size=(10, 3))
TABULAR = (".csv", ".parquet", ".feather")


def write(path, X, names=NAMES, **more):
    """Write a matrix in the format that the file's name asks for."""
    suffix = path.suffix.lower()
    if suffix in TABULAR:
        return write_table(path, pa.table(dict(zip(names, X.T, strict=True)) | more))
    with path.open("wb") as file:
        np.save(file, X) if suffix == ".npy" else np.savez_compressed(file, X=X)
    return path


def write_table(path, table):
    {
        ".csv": pyarrow.csv.write_csv,
        ".parquet": pyarrow.parquet.write_table,
        ".feather": pyarrow.feather.write_feather,
    }[path.suffix.lower()](table, path)
    return path


def read(source):
    return np.concatenate(list(source.rows.blocks()))


def refused(path, *words, **options):
    """Check that a file is refused in one short line that names it."""
    with pytest.raises(InputError) as caught:
        collect([path]) if not options else open_source(path, **options)
    message = str(caught.value)
    assert path.stem in message
    assert len(message.splitlines()) == 1
    assert len(message.removeprefix(str(path))) < 300
    assert message.isprintable()
    for word in words:
        assert word in message


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".CSV", ".Parquet", ".NPY", ".NPZ"])
def test_every_format_gives_the_same(tmp_path, suffix):
    source = open_source(write(tmp_path / f"plant-1{suffix}", X))
    assert source.name == "plant-1"
    assert source.rows.shape == X.shape
    assert_array_equal(read(source), X, strict=True)
    assert_array_equal(read(source), X)  # again from the start
    assert source.feature_names == (NAMES if suffix.lower() in TABULAR else None)
    assert source.ids is None


@pytest.mark.parametrize("suffix", [s for s in SUFFIXES if s != ".csv"])
def test_float32_stays_float32(tmp_path, suffix):
    source = open_source(write(tmp_path / f"plant{suffix}", X.astype(np.float32)))
    assert source.rows.dtype == np.float32
    assert_array_equal(read(source), X.astype(np.float32), strict=True)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".feather"])
@pytest.mark.parametrize("dtype", ["i2", "u4", "?", "f2"])
def test_other_numbers_become_float64(tmp_path, suffix, dtype):
    Y = (4 * X).astype(dtype)
    source = open_source(write(tmp_path / f"plant{suffix}", Y))
    assert source.rows.dtype == np.float64
    assert_array_equal(read(source), Y.astype(np.float64), strict=True)


@pytest.mark.parametrize("layout", [np.asfortranarray(X), X.astype(">f8")])
def test_any_layout_of_npy(tmp_path, layout):
    assert_array_equal(read(open_source(write(tmp_path / "plant.npy", layout))), X)


def test_npy_is_mapped_and_not_read(tmp_path, monkeypatch):
    path = write(tmp_path / "plant.npy", X)
    mapped = []
    monkeypatch.setattr(rows.Rows, "from_array", mapped.append)
    open_source(path)
    assert isinstance(mapped[0], np.memmap)


@pytest.mark.parametrize("suffix", TABULAR)
def test_columns_and_ids(tmp_path, suffix):
    ids = [f"part {i}" for i in range(len(X))]
    path = write(tmp_path / f"plant{suffix}", X, part=ids)
    source = open_source(path, id_column="part")
    assert source.feature_names == NAMES
    assert_array_equal(source.ids, ids)
    assert_array_equal(read(source), X)
    source = open_source(path, columns=["peak", "rms"])
    assert source.feature_names == ("peak", "rms")
    assert source.ids is None
    assert_array_equal(read(source), X[:, [2, 0]])


@pytest.mark.parametrize("suffix", TABULAR)
def test_decimals_are_numbers_and_nulls_are_missing(tmp_path, suffix):
    table = pa.table({"a": pa.array([1, None, 2]), "b": pa.array(["1.25", "2.5", "3.75"])})
    table = table.set_column(1, "b", table["b"].cast(pa.decimal128(5, 2)))
    path = write_table(tmp_path / f"plant{suffix}", table)
    assert_array_equal(read(open_source(path)), [[1, 1.25], [np.nan, 2.5], [2, 3.75]])
    refused(path, "Client 'plant', column 'a', row 1: found NaN, expected a finite number")


@pytest.mark.parametrize("n_rows", [1, 31, 32, 33, 200])
@pytest.mark.parametrize("row_group_size", [1, 7, 32, 1000])
def test_parquet_is_cut_into_equal_blocks(tmp_path, monkeypatch, n_rows, row_group_size):
    monkeypatch.setattr(rows, "BLOCK_BYTES", 8 * 3 * 32)
    Y = np.random.default_rng(1).normal(size=(n_rows, 3))
    table = pa.table(dict(zip(NAMES, Y.T, strict=True)))
    pyarrow.parquet.write_table(table, tmp_path / "plant.parquet", row_group_size=row_group_size)
    source = open_source(tmp_path / "plant.parquet")
    lengths = [len(block) for block in source.rows.blocks()]
    assert lengths == [32] * (n_rows // 32) + [n_rows % 32] * (n_rows % 32 > 0)
    assert_array_equal(read(source), Y)


def test_a_csv_may_turn_from_whole_numbers_to_others_late(tmp_path):
    path = tmp_path / "plant.csv"
    path.write_text("a,b\n" + "1,\n" * 700_000 + "1.5,2.5\n")
    assert_array_equal(list(open_source(path).rows.blocks())[-1][-1], [1.5, 2.5])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_no_file_is_refused(tmp_path, suffix):
    path = tmp_path / f"plant{suffix}"
    refused(path, "found no such file")
    path.mkdir()
    refused(path, "found a folder")
    path.rmdir()
    path.touch()
    refused(path, "found an empty file, expected rows of numbers")


@pytest.mark.parametrize("name", ["plant.xlsx", "plant"])
def test_an_unknown_format_is_refused(tmp_path, name):
    (tmp_path / name).write_text("a\n1\n")
    refused(tmp_path / name, "found a file of type", "expected one of .csv, .parquet, .npy, .npz")


JUNK = [
    bytes(range(256)) * 8,
    b"\x00" * 500,
    b"PK\x03\x04" + bytes(range(200)),
    b"PAR1" + bytes(range(200)) + b"PAR1",
    b"\x93NUMPY\x01\x00" + bytes(range(200)),
    b"ARROW1\x00\x00" + bytes(range(200)) + b"ARROW1",
    b"\xff\xfea\x00,\x00b\x00\n\x00",
    b"a,b\n" + bytes(range(14, 256)),
]


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_junk_is_refused(tmp_path, suffix, junk):
    path = tmp_path / f"plant{suffix}"
    path.write_bytes(junk)
    refused(path, "plant" + suffix)


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".feather"])
def test_damage_is_refused_wherever_it_is(tmp_path, suffix):
    path = write(tmp_path / f"plant{suffix}", np.tile(X, (30, 1)))
    whole = path.read_bytes()
    n_refused = 0
    for part in range(20):
        damaged = bytearray(whole)
        start = part * len(whole) // 20
        damaged[start : start + 8] = (b ^ 0xFF for b in damaged[start : start + 8])
        path.write_bytes(damaged)
        try:
            collect([path])  # no format but npz has a checksum: damaged numbers may be numbers
        except InputError:
            n_refused += 1
    assert n_refused > 0
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, "cannot be read")


def test_a_parquet_file_that_is_damaged_later_is_refused(tmp_path):
    path = write(tmp_path / "plant.parquet", X)
    source = open_source(path)
    path.write_bytes(b"junk")
    with pytest.raises(InputError, match=r"plant\.parquet: cannot be read"):
        read(source)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n", ["Client 'plant': found no rows"]),
        ("a,b\n1,x\n", ["column 'b': found text ('x' in row 0), expected numbers"]),
        ("a,b\n1,2\n3,hot\n", ["column 'b': found text ('hot' in row 1), expected numbers"]),
        ("a,b\n1,2024-01-31\n", ["column 'b': found dates, expected numbers"]),
        ("a,b\n1,2024-01-31 10:00:00\n", ["column 'b': found dates, expected numbers"]),
        ("a,b\n1,2\n3\n", ["cannot be read", "Expected 2 columns, got 1"]),
        ("a,a\n1,2\n", ["found two columns called 'a'"]),
        ("a;b\n1;2\n", ["column 'a;b': found text"]),
        ("a,b\n1,NA\n", ["column 'b', row 0: found NaN"]),
        ("a,b\n1,2\n1,-inf\n", ["column 'b', row 1: found inf"]),
        ("\n\n", ["cannot be read"]),
    ],
)
def test_a_bad_csv_is_refused(tmp_path, text, words):
    (tmp_path / "plant.csv").write_text(text)
    refused(tmp_path / "plant.csv", *words)


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"a": ["x"]}), "column 'a': found text"),
        (pa.table({"a": [[1.0]]}), "column 'a': found list"),
        (pa.table({"a": pa.array([0], pa.timestamp("s"))}), "column 'a': found dates"),
        (pa.table({"a": pa.array([None])}), "column 'a', row 0: found NaN"),
        (pa.table({"a": pa.array([], pa.float64())}), "found no rows"),
        (pa.table({}), "found no feature columns"),
    ],
)
def test_a_bad_table_is_refused(tmp_path, suffix, table, words):
    refused(write_table(tmp_path / f"plant{suffix}", table), words)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones(3), "found an array of 1 dimensions holding float64, expected 2 dimensions"),
        (np.ones((2, 2, 2)), "found an array of 3 dimensions"),
        (np.array([["x"]]), "holding <U1, expected 2 dimensions of numbers"),
        (np.array([[1j]]), "holding complex128"),
        (np.array([[0]], "M8[s]"), "holding datetime64[s]"),
        (np.array([[None]]), "cannot be read"),
        (np.ones((0, 2)), "found no rows"),
        (np.ones((2, 0)), "found no columns"),
    ],
)
def test_a_bad_array_is_refused(tmp_path, suffix, array, words):
    refused(write(tmp_path / f"plant{suffix}", array), words)


def test_an_npz_must_hold_just_one_array(tmp_path):
    path = tmp_path / "plant.npz"
    np.savez(path, X=X, y=X)
    refused(path, "found 2 arrays (X, y), expected just one")
    np.savez(path)
    refused(path, "found 0 arrays (), expected just one")


@pytest.mark.parametrize("suffix", TABULAR)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": ["rms", "crest"]}, "found no column 'crest' among 'rms', 'kurtosis'"),
        ({"id_column": "part"}, "found no column 'part' among 'rms', 'kurtosis', 'peak'"),
    ],
)
def test_a_missing_column_is_refused(tmp_path, suffix, options, words):
    refused(write(tmp_path / f"plant{suffix}", X), words, **options)


def test_a_file_of_ids_alone_is_refused(tmp_path):
    path = write(tmp_path / "plant.csv", X[:, :1], ["rms"])
    refused(path, "found no feature columns, expected at least one", id_column="rms")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_columns_of_arrays_have_no_names(tmp_path, suffix):
    refused(write(tmp_path / f"plant{suffix}", X), "has no named columns", columns=["rms"])


def test_a_csv_without_a_header_is_refused(tmp_path):
    path = tmp_path / "plant.csv"
    path.write_text("2,1.5\n3,4\n")
    with pytest.raises(InputError, match="found numbers in the first line, expected the names"):
        open_source(path)


def test_frequencies_may_name_columns(tmp_path):
    path = tmp_path / "plant.csv"
    path.write_text("12.5,25,50\n3,4,5\n")
    assert open_source(path).feature_names == ("12.5", "25", "50")


def test_a_column_named_twice_is_refused(tmp_path):
    path = tmp_path / "plant.csv"
    path.write_text("a,b\n3,4\n")
    with pytest.raises(InputError, match="found a column twice among a, a"):
        open_source(path, columns=["a", "a"])

import gzip
import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from fedgem import InputError
from fedgem.datasets import DATASET_NAMES, load_dataset
from fedgem.datasets.sources import SOURCES, checksum

SHAPES = {  # and the number of classes
    "mnist": (70_000, 10, 10),
    "fashion-mnist": (70_000, 64, 10),
    "emnist": (88_233, 16, 47),
    "cifar-10": (60_000, 64, 10),
    "abalone": (4_177, 7, 8),
    "frog-a": (7_195, 21, 10),
    "frog-b": (7_195, 21, 8),
    "waveform": (5_000, 21, 3),
}
ABALONES = """sex,length,diameter,height,whole,shucked,viscera,shell,rings
M,0.455,0.365,0.095,0.514,0.2245,0.101,0.15,15
I,0.33,0.255,0.08,0.205,0.0895,0.0395,0.055,5
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return an empty cache, and see to it that nothing else is looked at."""
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    monkeypatch.delenv("FEDGEM_DATA", raising=False)
    return tmp_path / "home" / "fedgem"


@pytest.fixture
def offered(tmp_path, monkeypatch):
    """Return a function that puts files where a data set is downloaded from."""

    def offer(name, *contents, sha256=None):
        urls = []
        for i, content in enumerate(contents):
            path = tmp_path / f"offered-{i}"
            path.write_bytes(content)
            urls.append(path.as_uri())
        source = SOURCES[name]
        changed = replace(source, urls=tuple(urls), sha256=sha256 or source.sha256)
        monkeypatch.setitem(SOURCES, name, changed)

    return offer


@pytest.fixture
def two_abalones(tmp_path, monkeypatch):
    """Return a folder with a data set of two rows, whose checksum is known."""
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "abalone.csv"
    path.write_text(ABALONES)
    source = SOURCES["abalone"]
    known = replace(source, sha256=checksum(source.read(path)), urls=("file:///nowhere",))
    monkeypatch.setitem(SOURCES, "abalone", known)
    return folder


@pytest.mark.parametrize("name", DATASET_NAMES)
def test_the_data_sets_of_the_paper(data_dir, name):
    dataset = load_dataset(name, data_dir)
    n, d, n_classes = SHAPES[name]
    assert dataset.name == name
    assert dataset.X.shape == (n, d)
    assert dataset.X.dtype == np.float64
    assert np.isfinite(dataset.X).all()
    assert len(dataset.feature_names) == d
    assert len(set(dataset.class_names)) == n_classes
    np.testing.assert_array_equal(np.unique(dataset.y), np.arange(n_classes))
    assert dataset.y.shape == (n,)
    assert dataset.licence
    assert dataset.citation
    assert dataset.source.startswith("https://")


def test_the_bins_of_abalone_hold_the_rings_that_they_name(data_dir):
    dataset = load_dataset("abalone", data_dir)
    lines = (data_dir / "abalone.csv").read_text().splitlines()[1:]
    rings = np.array([int(line.split(",")[-1]) for line in lines])
    ranges = [(r.min(), r.max()) for r in (rings[dataset.y == k] for k in range(8))]
    single = [(k, k) for k in range(6, 11)]
    assert ranges == [(1, 5), *single, (11, 12), (13, 29)]


def test_a_recording_of_frogs_has_one_species(data_dir):
    dataset = load_dataset("frog-a", data_dir)
    assert len(np.unique(dataset.groups)) == 60
    assert len(np.unique(np.column_stack([dataset.groups, dataset.y]), axis=0)) == 60


def uci_waveform(folder):
    header, *lines = (folder / "waveform.csv").read_text().splitlines()
    assert lines[42].endswith(",0.68,1")
    lines[42] = lines[42].replace(",0.68,1", ",0.6\t8,1")
    return ["\n".join([header.upper(), *lines]).encode()]


def uci_frogs(folder):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        table = gzip.decompress((folder / "frogs_mfccs.csv.gz").read_bytes())
        archive.writestr("Frogs_MFCCs.csv", table.replace(b"MFCCs_", b"MFCCs_ ", 1))
    return [file.getvalue()]


def parts_of_mnist(folder):
    with np.load(folder / "mnist_vae10.npz") as archive:
        halves = [np.split(archive[part], [60_000]) for part in "xy"]
    parts = []
    for x in halves[0]:
        file = io.BytesIO()
        np.save(file, x)
        parts.append(file.getvalue())
    return parts + [gzip.compress(bytes(8) + y.tobytes()) for y in halves[1]]


@pytest.mark.parametrize(
    ("name", "original"),
    [
        ("abalone", lambda folder: [(folder / "abalone.csv").read_bytes().title()]),
        ("waveform", uci_waveform),
        ("frog-a", uci_frogs),
        ("frog-b", uci_frogs),
        ("mnist", parts_of_mnist),
    ],
)
def test_what_the_sources_offer_is_the_same_data(
    data_dir, tmp_path, cache, offered, name, original
):
    offered(name, *original(data_dir))
    downloaded, stored = load_dataset(name), load_dataset(name, data_dir)
    np.testing.assert_array_equal(downloaded.X, stored.X)
    np.testing.assert_array_equal(downloaded.y, stored.y)
    assert downloaded.class_names == stored.class_names

    for path in tmp_path.glob("offered-*"):
        path.unlink()
    np.testing.assert_array_equal(load_dataset(name).X, stored.X)  # now from the cache
    assert [path.name for path in cache.iterdir()] == [SOURCES[name].file]


def test_the_folder_of_data_is_an_argument_or_a_variable(two_abalones, monkeypatch):
    given = load_dataset("abalone", two_abalones)
    np.testing.assert_array_equal(given.X[:, 0], [0.455, 0.33])
    np.testing.assert_array_equal(given.y, [7, 0])
    monkeypatch.setenv("FEDGEM_DATA", str(two_abalones))
    np.testing.assert_array_equal(load_dataset("abalone").X, given.X)


def test_a_damaged_file_is_refused(two_abalones):
    path = two_abalones / "abalone.csv"
    path.write_text(ABALONES.replace("0.455", "0.456"))
    with pytest.raises(InputError, match=r"abalone\.csv: found rows and classes with the SHA-256 "):
        load_dataset("abalone", two_abalones)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("abalone", b"a,b\n1,2\n", "abalone.csv: found 2 columns, expected 9."),
        ("abalone", ABALONES.replace("0.33,", "x,").encode(), "cannot be read: could not convert"),
        ("emnist", b"no archive", "emnist47_vae16.npz: cannot be read: "),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, name, content, message):
    (tmp_path / SOURCES[name].file).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_dataset(name, tmp_path)


def test_an_archive_without_labels_is_refused(tmp_path):
    np.savez(tmp_path / "emnist47_vae16.npz", x=np.eye(3))
    with pytest.raises(InputError, match="found no array 'y', expected 'x' and 'y'"):
        load_dataset("emnist", tmp_path)


@pytest.mark.parametrize("content", [ABALONES.encode(), b"<html>moved</html>"])
def test_a_download_of_something_else_is_not_kept(cache, offered, content):
    offered("abalone", content)
    with pytest.raises(InputError, match=r"^abalone: file://.* hold something else than expected"):
        load_dataset("abalone")
    assert not list(cache.iterdir())


def test_a_download_that_is_no_archive_is_not_kept(cache, offered):
    offered("frog-a", b"<html>moved</html>")
    with pytest.raises(InputError, match=r"^frog-a: .* File is not a zip file"):
        load_dataset("frog-a")
    assert not list(cache.iterdir())


def test_what_is_nowhere_is_told_with_what_to_do(tmp_path, cache, monkeypatch):
    missing = tmp_path / "missing"
    source = replace(SOURCES["waveform"], urls=(missing.as_uri(),))
    monkeypatch.setitem(SOURCES, "waveform", source)
    with pytest.raises(InputError) as error:
        load_dataset("waveform", tmp_path)
    assert str(error.value).startswith(
        f"waveform: found no waveform.csv in {tmp_path} or {cache}, and cannot download it: "
        f"{missing.as_uri()}: "
    )
    with pytest.raises(
        InputError, match=r"`python -m fedgem\.datasets\.embed emnist --data-dir DIR`"
    ):
        load_dataset("emnist")


def test_names_and_folders_that_are_none(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="name: found 'iris', expected one of mnist, "):
        load_dataset("iris")
    with pytest.raises(InputError, match="data_dir: found no folder "):
        load_dataset("abalone", tmp_path / "none")
    monkeypatch.setenv("FEDGEM_DATA", str(tmp_path / "none"))
    with pytest.raises(InputError, match="FEDGEM_DATA: found no folder "):
        load_dataset("abalone")

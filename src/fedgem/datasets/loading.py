"""Loading the paper's data sets: from a folder, from the cache, or from where they come from."""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from fedgem.datasets.sources import DATASET_NAMES, SOURCES, Source, checksum
from fedgem.errors import InputError
from fedgem.typing import Array, IntArray

__all__ = ["Dataset", "load_dataset"]

PATIENCE = 30.0  # seconds without an answer until a download is given up


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows, and what one has to know of them.

    Attributes
    ----------
    name : str
        What the data set is called.
    X : ndarray of float64 of shape (N, d)
        The rows.
    y : ndarray of int of shape (N,)
        Their classes, numbered from 0.
    feature_names, class_names : tuple of str
        What the columns and the classes are called.
    groups : ndarray of int of shape (N,), optional
        Which recording each row is from, where the data says so.
    licence, citation, source : str
        The licence, whom to cite, and the page that describes the data set.
    """

    name: str
    X: Array
    y: IntArray
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]
    groups: IntArray | None
    licence: str
    citation: str
    source: str


def load_dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load one of the paper's data sets.

    Its file is looked for in `data_dir` and in the cache, the folder ``fedgem`` within
    `sklearn.datasets.get_data_home`. If it is in neither, it is downloaded from its source into
    the cache. What it holds is compared with a checksum in every case.

    Parameters
    ----------
    name : str
        One of `DATASET_NAMES`.
    data_dir : path, optional
        A folder of data; by default the one that the environment variable ``FEDGEM_DATA`` names,
        if any.

    Returns
    -------
    Dataset
        The rows, their classes, the licence and whom to cite.

    Raises
    ------
    InputError
        If there is no such data set, or its file is found nowhere and cannot be downloaded, or
        does not hold what it should.

    Examples
    --------
    >>> from fedgem.datasets import load_dataset
    >>> load_dataset("iris")
    Traceback (most recent call last):
    fedgem.errors.InputError: name: found 'iris', expected one of mnist, fashion-mnist, emnist, \
cifar-10, abalone, frog-a, frog-b, waveform.
    """
    if name not in SOURCES:
        raise InputError(f"name: found {name!r}, expected one of {', '.join(DATASET_NAMES)}.")
    source = SOURCES[name]
    folders = _folders(data_dir)
    for folder in folders:
        if (folder / source.file).is_file():
            return _read(name, source, folder / source.file)
    looked = f"{name}: found no {source.file} in {' or '.join(map(str, folders))}"
    if not source.urls:
        raise InputError(
            f"{looked}, and it is nowhere to download; make it with "
            f"`python -m fedgem.datasets.embed {name} --data-dir DIR`, then give DIR as data_dir."
        )
    try:
        parts = [_fetched(url) for url in source.urls]
    except OSError as error:
        raise InputError(
            f"{looked}, and cannot download it: {error}; connect to the network, or give a folder "
            "that holds the file as data_dir or in FEDGEM_DATA."
        ) from error
    return _cached(name, source, parts, folders[-1])


def _folders(data_dir: str | Path | None) -> list[Path]:
    """Return where to look, the cache last."""
    # Takes long to import, and the demo does without.
    from sklearn.datasets import get_data_home

    cache = Path(get_data_home()) / "fedgem"
    given = data_dir or os.environ.get("FEDGEM_DATA")
    if not given:
        return [cache]
    folder = Path(given).expanduser()
    if not folder.is_dir():
        what = "data_dir" if data_dir else "FEDGEM_DATA"
        raise InputError(f"{what}: found no folder {folder}, expected one that holds data.")
    return [folder, cache]


def _fetched(url: str) -> bytes:
    try:
        with urlopen(url, timeout=PATIENCE) as answer:
            content: bytes = answer.read()
    except (OSError, HTTPException) as error:
        raise OSError(f"{url}: {error}") from error
    return content


def _cached(name: str, source: Source, parts: list[bytes], cache: Path) -> Dataset:
    """Build the file, and put it into the cache once it has been read and compared."""
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache) as folder:
        path = Path(folder) / source.file
        try:
            path.write_bytes(source.build(*parts))
            dataset = _read(name, source, path)
        except (KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(
                f"{name}: {', '.join(source.urls)} hold something else than expected: {error}"
            ) from error
        path.replace(cache / source.file)
    return dataset


def _read(name: str, source: Source, path: Path) -> Dataset:
    contents = source.read(path)
    found, expected = checksum(contents), contents.stated or source.sha256
    if found != expected:
        raise InputError(
            f"{path}: found rows and classes with the SHA-256 {found}, expected {expected}; the "
            "file is damaged, or another version."
        )
    return Dataset(
        name,
        contents.X,
        contents.y,
        source.feature_names,
        contents.class_names,
        contents.groups,
        source.licence,
        source.citation,
        source.page,
    )

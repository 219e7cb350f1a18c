"""The paper's data sets: what each is, where it comes from, and how its file is read."""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv

from fedgem.errors import InputError
from fedgem.files import reading
from fedgem.typing import Array, IntArray

__all__ = ["DATASET_NAMES", "SOURCES", "Contents", "Source", "checksum"]

UCI = "https://archive.ics.uci.edu/static/public"
MNIST_LABELS = "https://ossci-datasets.s3.amazonaws.com/mnist"
VAE_EMBEDDINGS = "https://github.com/fbickfordsmith/vae-embeddings"
VAE_FILES = (
    "https://raw.githubusercontent.com/fbickfordsmith/vae-embeddings/"
    "4fde40fc89385c8b50551b75c16fe61e035198d5/data/mnist"
)
AGES = [6, 7, 8, 9, 10, 11, 13]  # rings at which a bin of the paper begins: eight bins


@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds.

    Attributes
    ----------
    X : ndarray of shape (N, d)
        The rows.
    y : ndarray of int of shape (N,)
        Their classes, numbered from 0.
    class_names : tuple of str
        What the classes are called.
    groups : ndarray of int of shape (N,), optional
        Which recording each row is from.
    stated : str, optional
        The checksum that the file itself states, as files of embeddings made by
        `fedgem.datasets.embed` do.
    """

    X: Array
    y: IntArray
    class_names: tuple[str, ...]
    groups: IntArray | None = None
    stated: str | None = None


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    Attributes
    ----------
    file : str
        The name of its file, in a folder of data and in the cache.
    read : callable
        What reads that file.
    sha256 : str
        The `checksum` of what it holds.
    feature_names : tuple of str
        What the columns are called.
    licence, citation, page : str
        Its licence, whom to cite, and the page that describes it.
    urls : tuple of str
        What to download; empty where nobody offers the embeddings, so that they have to be made.
    build : callable
        What makes the file out of what the URLs hold.
    """

    file: str
    read: Callable[[Path], Contents]
    sha256: str
    feature_names: tuple[str, ...]
    licence: str
    citation: str
    page: str
    urls: tuple[str, ...] = ()
    build: Callable[..., bytes] = bytes


def checksum(contents: Contents) -> str:
    """Return the SHA-256 of the rows, their classes and their groups.

    It is of what a file says and not of its bytes, so that it is the same for the original file
    and for a copy that is packed, or spells its header, in another way.

    Examples
    --------
    >>> checksum(Contents(np.eye(2), np.array([0, 1]), ("a", "b")))[:8]
    '7c43fc4a'
    """
    digest = hashlib.sha256(contents.X.astype("<f8").tobytes())
    for numbers in (contents.y, contents.groups):
        if numbers is not None:
            digest.update(numbers.astype("<i8").tobytes())
    return digest.hexdigest()


def _embeddings(class_names: Sequence[str], path: Path) -> Contents:
    with reading(path), np.load(path) as archive:
        missing = {"x", "y"} - set(archive.files)
        if missing:
            raise InputError(f"{path}: found no array {min(missing)!r}, expected 'x' and 'y'.")
        stated = str(archive["sha256"]) if "sha256" in archive.files else None
        X, y = archive["x"].astype(np.float64), archive["y"].astype(np.intp)
    return Contents(X, y, tuple(class_names), stated=stated)


def _columns(path: Path, n_columns: int) -> list[np.ndarray[Any, Any]]:
    table = pyarrow.csv.read_csv(path)
    if table.num_columns != n_columns:
        raise InputError(f"{path}: found {table.num_columns} columns, expected {n_columns}.")
    return [column.to_numpy() for column in table.columns]


def _abalone(path: Path) -> Contents:
    """Read it without the sex, which is a category."""
    with reading(path):
        _, *features, rings = _columns(path, 9)
        X, y = np.column_stack(features).astype(np.float64), np.digitize(rings, AGES)
    return Contents(X, y, ("to 5 rings", "6", "7", "8", "9", "10", "11 to 12", "from 13"))


def _frogs(label: int, path: Path) -> Contents:
    """Read it without the first coefficient, as in the paper."""
    with reading(path):
        _, *features, family, genus, species, record = _columns(path, 26)
        names, y = np.unique((family, genus, species)[label], return_inverse=True)
        X = np.column_stack(features).astype(np.float64)
    return Contents(X, y, tuple(names.tolist()), groups=record)


def _waveform(path: Path) -> Contents:
    with reading(path):
        *features, waves = _columns(path, 22)
        X, y = np.column_stack(features).astype(np.float64), waves.astype(np.intp)
    return Contents(X, y, ("0", "1", "2"))


def _without_tabs(table: bytes) -> bytes:
    """Repair the file of Waveform, in which a tab splits a number of the 43rd row: 0.6<tab>8."""
    return table.replace(b"\t", b"")


def _unzipped_frogs(archive: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        return gzip.compress(files.read("Frogs_MFCCs.csv"))


def _joined_mnist(*parts: bytes) -> bytes:
    """Join the embeddings of the images to train and to test on, and their labels."""
    *embeddings, train_labels, test_labels = parts
    x = np.concatenate([np.load(io.BytesIO(part)) for part in embeddings])
    # A file of labels begins with eight bytes that say how many there are.
    y = b"".join(gzip.decompress(part)[8:] for part in (train_labels, test_labels))
    file = io.BytesIO()
    np.savez_compressed(file, x=x, y=np.frombuffer(y, dtype=np.uint8))
    return file.getvalue()


def _numbered(name: str, first: int, last: int) -> tuple[str, ...]:
    return tuple(f"{name}{i}" for i in range(first, last + 1))


FASHION = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
THINGS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
DIGITS = "0123456789"
CHARACTERS = DIGITS + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "abdefghnqrt"  # the others look like capitals

_frog = partial(
    Source,
    file="frogs_mfccs.csv.gz",
    feature_names=_numbered("MFCCs_", 2, 22),
    licence="CC BY 4.0",
    citation="Colonna, Nakamura, Cristo and Gordo (2015), Anuran Calls (MFCCs), "
    "UCI Machine Learning Repository, https://doi.org/10.24432/C5CC9H",
    page="https://archive.ics.uci.edu/dataset/406",
    urls=(f"{UCI}/406/anuran+calls+mfccs.zip",),
    build=_unzipped_frogs,
)

SOURCES = {
    "mnist": Source(
        file="mnist_vae10.npz",
        read=partial(_embeddings, DIGITS),
        sha256="ffec70cc3ac1cda67b4a1ff84c3819dc2a8c193c9110bf59736e4cda959f22b8",
        feature_names=_numbered("z", 1, 10),
        licence="MIT (the embeddings); CC BY-SA 3.0 (MNIST)",
        citation="LeCun, Cortes and Burges (2010), MNIST handwritten digit database; embeddings: "
        "Bickford Smith, Foster and Rainforth (2024), Making better use of unlabelled data in "
        "Bayesian active learning, AISTATS",
        page=VAE_EMBEDDINGS,
        urls=(
            f"{VAE_FILES}/embeddings_vae_train.npy",
            f"{VAE_FILES}/embeddings_vae_test.npy",
            f"{MNIST_LABELS}/train-labels-idx1-ubyte.gz",
            f"{MNIST_LABELS}/t10k-labels-idx1-ubyte.gz",
        ),
        build=_joined_mnist,
    ),
    "fashion-mnist": Source(
        file="fmnist_vae64.npz",
        read=partial(_embeddings, FASHION),
        sha256="ab64745cb1f4dcc88a13ba25116490693ca693116a8cb28035508014e6c66884",
        feature_names=_numbered("z", 1, 64),
        licence="MIT",
        citation="Xiao, Rasul and Vollgraf (2017), Fashion-MNIST: a novel image dataset for "
        "benchmarking machine learning algorithms, arXiv:1708.07747",
        page="https://github.com/zalandoresearch/fashion-mnist",
    ),
    "emnist": Source(
        file="emnist47_vae16.npz",
        read=partial(_embeddings, CHARACTERS),
        sha256="b76280e44da1cea1bca39f80463806612ad5b4a56f552453764b192e0944ac81",
        feature_names=_numbered("z", 1, 16),
        licence="none stated (the paper names CC BY 4.0)",
        citation="Cohen, Afshar, Tapson and van Schaik (2017), EMNIST: extending MNIST to "
        "handwritten letters, IJCNN, 2921-2926",
        page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    ),
    "cifar-10": Source(
        file="cifar10_barlow_vae64.npz",
        read=partial(_embeddings, THINGS),
        sha256="6525d0e62af20708347382275692e3aec64a115ccf98cdeedbf0e028a25586ad",
        feature_names=_numbered("z", 1, 64),
        licence="none stated (the paper names CC BY 4.0)",
        citation="Krizhevsky (2009), Learning multiple layers of features from tiny images",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "abalone": Source(
        file="abalone.csv",
        read=_abalone,
        sha256="b980156b54cd47e6a05a0ff0ab8564bfc83644d0a448783be3c57f2d4105a653",
        feature_names=(
            *("length", "diameter", "height"),
            *("whole_weight", "shucked_weight", "viscera_weight", "shell_weight"),
        ),
        licence="CC BY 4.0",
        citation="Nash, Sellers, Talbot, Cawthorn and Ford (1994), Abalone, "
        "UCI Machine Learning Repository, https://doi.org/10.24432/C55C7W",
        page="https://archive.ics.uci.edu/dataset/1",
        urls=(f"{UCI}/1/data.csv",),
    ),
    "frog-a": _frog(
        read=partial(_frogs, 2),
        sha256="341d78ed3530de3dc03bdf9a3c9354ab1af7150b287498882cd6581d61bbdca0",
    ),
    "frog-b": _frog(
        read=partial(_frogs, 1),
        sha256="dd9bf50fb5cb282abce315c226eb9d9eff0776801e5a548fa8e48dbcbf410557",
    ),
    "waveform": Source(
        file="waveform.csv",
        read=_waveform,
        sha256="dd01e78af887f2f06e30e1c8e48d1ff08def11ab53985735335c70324a63a62b",
        feature_names=_numbered("x", 1, 21),
        licence="CC BY 4.0",
        citation="Breiman and Stone (1984), Waveform Database Generator (Version 1), "
        "UCI Machine Learning Repository, https://doi.org/10.24432/C5CS3C",
        page="https://archive.ics.uci.edu/dataset/107",
        urls=(f"{UCI}/107/data.csv",),
        build=_without_tabs,
    ),
}
DATASET_NAMES = tuple(SOURCES)

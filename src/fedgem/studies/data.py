"""The one place where studies read data sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv

from fedgem.errors import InputError
from fedgem.typing import Array, IntArray

EMBEDDINGS = {
    "mnist": "mnist_vae10.npz",
    "fashion-mnist": "fmnist_vae64.npz",
    "emnist": "emnist47_vae16.npz",
    "cifar-10": "cifar10_barlow_vae64.npz",
}
TABLES = {
    "abalone": ("abalone.csv", "rings"),
    "frog-a": ("frogs_mfccs.csv.gz", "Species"),
    "frog-b": ("frogs_mfccs.csv.gz", "Genus"),
    "waveform": ("waveform.csv", "class"),
}
NO_FEATURES = {"sex", "rings", "class", "Family", "Genus", "Species", "RecordID", "MFCCs_1"}


def load(name: str, data_dir: Path | None) -> tuple[Array, IntArray]:
    """Return a data set's rows, and their classes numbered from 0."""
    folder = data_dir or Path()
    path = folder / (EMBEDDINGS.get(name) or TABLES[name][0])
    if not path.exists():
        raise InputError(f"{name}: found no {path}, expected the data set; give its --data-dir.")
    if name in EMBEDDINGS:
        with np.load(path) as archive:
            X, y = archive["x"], archive["y"]
    else:
        table = pyarrow.csv.read_csv(path)
        X = np.column_stack([table[c] for c in table.column_names if c not in NO_FEATURES])
        y = table[TABLES[name][1]].to_numpy()
    if name == "abalone":
        y = np.digitize(y, [6, 7, 8, 9, 10, 11, 13])
    return X.astype(np.float64), np.unique(y, return_inverse=True)[1]

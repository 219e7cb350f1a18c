"""Saving a run after every round, and going on with it if it is the same run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgem import storage
from fedgem.consensus import Consensus
from fedgem.errors import InputError
from fedgem.inputs import Inputs
from fedgem.server import Training
from fedgem.typing import Array

FORMAT = "fedgem checkpoint"


def fingerprint(
    inputs: Inputs, weights: Mapping[str, Array], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Say what a checkpoint belongs to: the parameters, and digests of everything larger.

    Parameters
    ----------
    inputs : Inputs
        The clients' rows.
    weights : dict of str to array
        The weights of their components.
    parameters : dict of str to number, bool or None
        The parameters that the rounds depend on.

    Examples
    --------
    >>> from fedgem.inputs import collect
    >>> sorted(fingerprint(collect([[1.0], [2.0]]), {"0": np.ones(1)}, {"tol": 0.1}))
    ['clients', 'columns', 'components', 'rows', 'tol']
    """
    rows = hashlib.sha256()
    for client in inputs.rows.values():
        # Of rows that are elsewhere nothing is known for certain: a client may yet have to come.
        for block in () if client.are_elsewhere else client.blocks():
            rows.update(np.ascontiguousarray(block).data)
    return {
        "clients": _digest(
            {
                name: None if client.are_elsewhere else client.shape
                for name, client in inputs.rows.items()
            }
        ),
        "columns": _digest(inputs.feature_names),
        "components": _digest({name: w.tolist() for name, w in weights.items()}),
        "rows": rows.hexdigest(),
        **parameters,
    }


def save(
    path: str | os.PathLike[str],
    belongs_to: Mapping[str, Any],
    seed: int,
    training: Training | Consensus,
) -> None:
    """Replace the checkpoint in one step."""
    storage.save(path, FORMAT, {"fingerprint": belongs_to, "seed": seed, "training": training})


def resume(
    path: str | os.PathLike[str], belongs_to: Mapping[str, Any]
) -> tuple[int, Training | Consensus]:
    """Return the seed and the state of a checkpoint, if it belongs to this very run."""
    content = storage.load(path, FORMAT)
    for key, expected in belongs_to.items():
        if content["fingerprint"].get(key) != expected:
            raise InputError(
                f"{path}: found the checkpoint of a run with other {key}, expected this run's. "
                "Finish that run, or remove the file to start anew."
            )
    return content["seed"], content["training"]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()

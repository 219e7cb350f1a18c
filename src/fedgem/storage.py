"""Files without pickle: states and models as JSON beside arrays, in one npz file.

The file is an ordinary ``.npz`` archive. Its member ``fedgem.json`` holds ``format`` (what the
file is), ``version`` (of the format) and ``content``: numbers, strings, lists and objects, where
``{"array": "a3"}`` stands for the archive's member ``a3.npy`` and ``{"type": "Round", ...}`` for
one of the types below. Reading one needs nothing but a zip library, JSON and NumPy.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedgem.consensus import Consensus, ConsensusSettings
from fedgem.errors import StoredFileError
from fedgem.fitted import FittedMixture
from fedgem.gaussian.covariances import Gaussians
from fedgem.gaussian.statistics import Statistics
from fedgem.gaussian.subspace import Subspace
from fedgem.messages import Profile
from fedgem.server import Clusters, Components, Member, Round, Settings, Training
from fedgem.shared import SharedMixture
from fedgem.superclusters import MergeTree

VERSION = 1
_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Clusters,
        Components,
        Consensus,
        ConsensusSettings,
        FittedMixture,
        Gaussians,
        Member,
        MergeTree,
        Profile,
        Round,
        Settings,
        SharedMixture,
        Statistics,
        Subspace,
        Training,
    )
}


def save(path: str | os.PathLike[str], kind: str, content: Any) -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : path
        Where to; what is there is replaced in one step.
    kind : str
        What the file is; `load` asks for the same.
    content : dict
        Values as the module's description lists them.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> path = Path(tempfile.mkdtemp()) / "x.npz"
    >>> save(path, "example", {"mean": np.arange(2.0)})
    >>> load(path, "example")
    {'mean': array([0., 1.])}
    """
    arrays: dict[str, Any] = {}
    head = {"format": kind, "version": VERSION, "content": _encode(content, arrays)}
    path = Path(path)
    if not path.parent.is_dir():
        raise StoredFileError(f"{path}: found no folder {path.parent}, expected one to write to.")
    # One name, so that what a killed process left is overwritten by the next.
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("fedgem.json", json.dumps(head, allow_nan=False))
                for name, array in arrays.items():
                    buffer = io.BytesIO()
                    np.save(buffer, array, allow_pickle=False)
                    archive.writestr(f"{name}.npy", buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike[str] | IO[bytes], kind: str) -> Any:
    """Read a file that `save` wrote; refuse anything else in one sentence."""
    try:
        with zipfile.ZipFile(path) as archive:
            head = json.loads(archive.read("fedgem.json"))
            if head["format"] != kind:
                raise StoredFileError(f"{path} holds a {head['format']}, expected a {kind}.")
            if head["version"] > VERSION:
                raise StoredFileError(
                    f"{path} was written by a newer fedgem (format version {head['version']}; "
                    f"this one reads up to {VERSION}). Upgrade fedgem to read it."
                )
            return _decode(head["content"], archive)
    except FileNotFoundError:
        raise StoredFileError(f"{path} does not exist.") from None
    except StoredFileError:
        raise
    except Exception as error:  # zip, JSON and NumPy have a dozen kinds for damage
        raise StoredFileError(
            f"{path} is damaged or was not written by fedgem ({type(error).__name__})."
        ) from error


def _encode(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if type(value) in _TYPES.values():
        return {"type": type(value).__name__} | {
            f.name: _encode(getattr(value, f.name), arrays) for f in fields(value)
        }
    if isinstance(value, dict):
        # A list of pairs: keys are names that users choose, "type" and "array" among them.
        return {
            "dict": [[_encode(key, arrays), _encode(part, arrays)] for key, part in value.items()]
        }
    if isinstance(value, (list, tuple)):
        return [_encode(part, arrays) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}  # JSON has no word for it
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no place in a stored file.")


def _decode(value: Any, archive: zipfile.ZipFile) -> Any:
    if isinstance(value, list):
        return tuple(_decode(part, archive) for part in value)
    if isinstance(value, dict):
        if "array" in value:
            content = io.BytesIO(archive.read(f"{value['array']}.npy"))
            return np.load(content, allow_pickle=False)
        if "dict" in value:
            return {_decode(key, archive): _decode(part, archive) for key, part in value["dict"]}
        if "number" in value:
            return float(value["number"])
        of_type = _TYPES[value["type"]]
        return of_type(**{k: _decode(part, archive) for k, part in value.items() if k != "type"})
    return value

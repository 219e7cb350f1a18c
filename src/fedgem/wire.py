"""Messages as bytes: a short JSON header, then the arrays as they lie in memory.

The layout is ``b"FGEM"``, the version as one byte, the length of the header as four, the header,
and the arrays one after the other; numbers are little-endian. The header holds the name of the
message and its fields in the order of their declaration: a part of a message is the list of its
own fields, and an array is ``[type, order, *shape]``. Numbers arrive exactly as they were sent.

Nothing in the bytes decides what is built: `decode` goes by the declarations in
`fedgem.messages`, refuses whatever does not fit them, and takes no more memory than a few times
the bytes that it was given, of which there may be `MOST_BYTES`.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from fedgem import messages
from fedgem.errors import WireError
from fedgem.messages import Message

MAGIC, VERSION = b"FGEM", 1
MOST_BYTES = 2**28  # in all
MOST_HEADER = 2**20  # bytes of the header
MOST_ARRAYS = 1000
MOST_DIMENSIONS = 3
MOST_LETTERS = 1000  # of a word
LARGEST_INT = 2**63 - 1
_HEAD = struct.Struct("<4sBI")
_DTYPES = {name: np.dtype(name) for name in ("<f8", "<f4", "<i8")}
# What a field declared as just `Message` may hold.
_KINDS = {
    name: kind
    for name, kind in vars(messages).items()
    if name.endswith(("Request", "Reply")) and issubclass(kind, Message)
}

M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    """Return a message as bytes.

    Examples
    --------
    >>> from fedgem.messages import TrainRequest
    >>> decode(encode(TrainRequest(3, n_steps=1, means=np.array([[0.1]]))), TrainRequest)
    TrainRequest(round=3, n_steps=1, means=array([[0.1]]), covariances=None, weights=None)
    """
    blobs: list[bytes] = []
    header = json.dumps(
        [type(message).__name__, _fields_out(message, blobs)],
        separators=(",", ":"),
        allow_nan=False,
    ).encode()
    data = b"".join([_HEAD.pack(MAGIC, VERSION, len(header)), header, *blobs])
    if len(data) > MOST_BYTES or len(header) > MOST_HEADER or len(blobs) > MOST_ARRAYS:
        raise WireError(
            f"Found a {type(message).__name__} of {len(data)} bytes and {len(blobs)} arrays, "
            f"expected at most {MOST_BYTES} and {MOST_ARRAYS}."
        )
    return data


def decode(data: bytes, kind: type[M]) -> M:
    """Return the message of this kind that some bytes hold, or raise `WireError`.

    Parameters
    ----------
    data : bytes
        What arrived.
    kind : type
        The message that is expected.
    """
    try:
        return _decode(data, kind)
    except WireError:
        raise
    except (ValueError, RecursionError) as error:  # JSON, UTF-8, and the message's own checks
        raise WireError(f"Found no {kind.__name__}: {str(error)[:200]}") from error


def _decode(data: bytes, kind: type[M]) -> M:
    _expect(len(data) <= MOST_BYTES, f"{len(data)} bytes", f"at most {MOST_BYTES}")
    _expect(len(data) >= _HEAD.size, f"{len(data)} bytes", "a message")
    magic, version, length = _HEAD.unpack_from(data)
    _expect(magic == MAGIC, "something else", "a message of fedgem")
    _expect(version == VERSION, f"format version {version}", f"version {VERSION}")
    _expect(length <= MOST_HEADER, f"a header of {length} bytes", f"at most {MOST_HEADER}")
    end = _HEAD.size + length
    _expect(end <= len(data), "a message that is cut off", "all of it")
    header = json.loads(data[_HEAD.size : end].decode(), parse_constant=_no_constant)
    name, values = _list(header, 2)
    _expect(name == kind.__name__, f"a {str(name)[:40]!r}", f"a {kind.__name__}")
    blobs = _Blobs(data, end)
    message: M = _fields_in(values, kind, blobs)
    _expect(blobs.start == len(data), f"{len(data) - blobs.start} bytes too many", "none")
    return message


class _Blobs:
    """The arrays of a message, handed out one after the other."""

    def __init__(self, data: bytes, start: int) -> None:
        self.data, self.start, self.count = data, start, 0

    def next(self, size: int) -> memoryview:
        self.count += 1
        _expect(self.count <= MOST_ARRAYS, "more arrays", f"at most {MOST_ARRAYS}")
        stop = self.start + size
        _expect(stop <= len(self.data), "an array that is cut off", "all of it")
        blob, self.start = memoryview(self.data)[self.start : stop], stop
        return blob


@cache
def _declared(kind: type) -> list[tuple[str, Any]]:
    """Return the fields of a message or a part, and what each may hold."""
    hints = get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in fields(kind)]


def _fields_out(value: Any, blobs: list[bytes]) -> list[Any]:
    kind: Any = type(value)
    return [_out(getattr(value, name), declared, blobs) for name, declared in _declared(kind)]


def _out(value: Any, declared: Any, blobs: list[bytes]) -> Any:
    """Return a value as what goes into the header; arrays go to the blobs."""
    if value is None:
        return None
    declared = _optional(declared)[0]
    if get_origin(declared) is np.ndarray:
        return _array_out(np.asarray(value), blobs)
    if declared is Message:
        return [type(value).__name__, _fields_out(value, blobs)]
    if get_origin(declared) is tuple:
        return [_out(part, get_args(declared)[0], blobs) for part in value]
    if is_dataclass(value):
        return _fields_out(value, blobs)
    if isinstance(value, bytes):
        blobs.append(value)
        return len(value)
    return value.item() if isinstance(value, np.generic) else value


def _array_out(array: np.ndarray[Any, Any], blobs: list[bytes]) -> list[Any]:
    # The order in memory travels, too: it decides in which order NumPy adds.
    order: Literal["F", "C"] = "F" if array.flags.fnc else "C"
    little = array.dtype.newbyteorder("<")
    blobs.append(np.asarray(array, little).tobytes(order))
    return [little.str, order, *array.shape]


def _fields_in(values: Any, kind: type, blobs: _Blobs) -> Any:
    declared = _declared(kind)
    values = _list(values, len(declared))
    return kind(
        *(_in(value, type_, blobs) for value, (_, type_) in zip(values, declared, strict=True))
    )


def _in(value: Any, declared: Any, blobs: _Blobs) -> Any:
    """Return the value that the header and the blobs hold for a field."""
    declared, may_be_none = _optional(declared)
    if value is None and may_be_none:
        return None
    origin = get_origin(declared)
    if origin is np.ndarray:
        return _array_in(_list(value), declared, blobs)
    if declared is Message:
        name, values = _list(value, 2)
        known = isinstance(name, str) and name in _KINDS
        _expect(known, f"a {str(name)[:40]!r}", "a message of fedgem")
        return _fields_in(values, _KINDS[name], blobs)
    if origin is tuple:
        return tuple(_in(part, get_args(declared)[0], blobs) for part in _list(value))
    if origin is Literal:
        known = isinstance(value, str) and value in get_args(declared)
        _expect(known, repr(value)[:40], f"one of {get_args(declared)}")
        return value
    if is_dataclass(declared):
        return _fields_in(value, declared, blobs)  # type: ignore[arg-type]
    return _SCALARS[declared](value, blobs)


def _array_in(value: list[Any], declared: Any, blobs: _Blobs) -> np.ndarray[Any, Any]:
    _expect(2 <= len(value) <= 2 + MOST_DIMENSIONS, repr(value)[:40], "type, order and shape")
    name, order, *shape = value
    whole = get_args(declared)[1] == np.dtype[np.intp]
    known = isinstance(name, str) and name in _DTYPES and (name == "<i8" or not whole)
    _expect(known, repr(name)[:40], "'<i8'" if whole else f"one of {', '.join(_DTYPES)}")
    _expect(order in ("C", "F"), repr(order)[:40], "'C' or 'F'")
    for size in shape:
        fits = type(size) is int and 0 <= size <= MOST_BYTES
        _expect(fits, f"a dimension of {str(size)[:40]}", f"at most {MOST_BYTES}")
    dtype = _DTYPES[name]
    flat = np.frombuffer(blobs.next(math.prod(shape) * dtype.itemsize), dtype)
    # A copy: aligned, and not holding on to the whole message.
    native = dtype.newbyteorder("=")
    return flat.reshape(shape, order=order).astype(native, order="K", copy=True)


def _int_in(value: Any, blobs: _Blobs) -> int:
    fits = type(value) is int and abs(value) <= LARGEST_INT
    _expect(fits, repr(value)[:40], "a whole number of 64 bits")
    return int(value)


def _float_in(value: Any, blobs: _Blobs) -> float:
    fits = type(value) is float or (type(value) is int and abs(value) <= LARGEST_INT)
    _expect(fits, repr(value)[:40], "a number")
    return float(value)


def _bool_in(value: Any, blobs: _Blobs) -> bool:
    _expect(type(value) is bool, repr(value)[:40], "true or false")
    return bool(value)


def _str_in(value: Any, blobs: _Blobs) -> str:
    fits = isinstance(value, str) and len(value) <= MOST_LETTERS
    _expect(fits, repr(value)[:40], f"a word of at most {MOST_LETTERS} letters")
    return str(value)


def _bytes_in(value: Any, blobs: _Blobs) -> bytes:
    fits = type(value) is int and 0 <= value <= MOST_BYTES
    _expect(fits, repr(value)[:40], "a number of bytes")
    return bytes(blobs.next(value))


_SCALARS: dict[Any, Callable[[Any, _Blobs], Any]] = {
    int: _int_in,
    float: _float_in,
    bool: _bool_in,
    str: _str_in,
    bytes: _bytes_in,
}


def _optional(declared: Any) -> tuple[Any, bool]:
    """Split ``X | None`` into X and whether None is allowed."""
    if get_origin(declared) in (Union, UnionType):
        (inner,) = (part for part in get_args(declared) if part is not NoneType)
        return inner, True
    return declared, False


def _list(value: Any, length: int | None = None) -> list[Any]:
    fits = isinstance(value, list) and (length is None or len(value) == length)
    _expect(fits, repr(value)[:40], "a list" if length is None else f"a list of {length}")
    return list(value)


def _expect(holds: bool, found: str, expected: str) -> None:
    if not holds:
        raise WireError(f"Found {found}, expected {expected}.")


def _no_constant(name: str) -> float:
    raise WireError(f"Found {name}, expected a finite number.")

import json
from contextlib import suppress
from typing import Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from fedgem import messages, wire
from fedgem.client import Client
from fedgem.errors import WireError
from fedgem.messages import (
    Answer,
    Ask,
    MomentsReply,
    ScoreReply,
    ShareReply,
    TrainRequest,
    leaves,
)
from fedgem.rows import Rows

KINDS = [
    kind
    for kind in vars(messages).values()
    if isinstance(kind, type)
    and issubclass(kind, messages.Message)
    and kind is not messages.Message
]
words = st.text(max_size=20).filter(lambda text: text.isprintable())


def of_type(declared):
    """A strategy for whatever a field is declared to hold."""
    origin, args = get_origin(declared), get_args(declared)
    if origin is Union or type(None) in args:
        inner = next(part for part in args if part is not type(None))
        return st.none() | of_type(inner)
    if origin is np.ndarray:
        dtypes = ["<i8"] if args[1] == np.dtype[np.intp] else ["<f8", "<f4", "<i8"]
        return st.sampled_from(dtypes).flatmap(arrays)
    if origin is tuple:
        return st.lists(of_type(args[0]), max_size=3).map(tuple)
    if origin is Literal:
        return st.sampled_from(args)
    if declared is messages.Message:
        return st.sampled_from(sorted(wire._KINDS)).flatmap(lambda name: message(wire._KINDS[name]))
    scalars = {
        int: st.integers(-(2**63) + 1, 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        str: words,
        bytes: st.binary(max_size=50),
    }
    return scalars[declared] if declared in scalars else message(declared)


def arrays(dtype):
    finite = None if dtype == "<i8" else {"allow_nan": False, "allow_infinity": False}
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    made = hnp.arrays(dtype, shapes, elements=finite)
    return st.tuples(made, st.booleans()).map(lambda a: np.asfortranarray(a[0]) if a[1] else a[0])


def message(kind):
    return st.builds(kind, **{k: of_type(t) for k, t in get_type_hints(kind).items()})


def assert_same(a, b):
    assert type(a) is type(b)
    found, expected = list(leaves(a)), list(leaves(b))
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (_, x), (_, y) in zip(found, expected, strict=True):
        assert_array_equal(x, y)
        if isinstance(x, np.ndarray):
            assert (x.dtype, x.tobytes()) == (y.dtype, y.tobytes())
            assert x.flags.c_contiguous == y.flags.c_contiguous


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_arrives_as_it_was_sent(kind):
    @settings(max_examples=20)
    @given(message(kind))
    def check(sent):
        assert_same(wire.decode(wire.encode(sent), kind), sent)

    check()


@given(st.sampled_from([Ask, Answer]).flatmap(message), st.data())
def test_whatever_happens_to_the_bytes_only_one_error_is_raised(sent, data):
    encoded = bytearray(wire.encode(sent))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        how = data.draw(st.sampled_from(["change", "cut", "insert", "double"]))
        if how == "change":
            encoded[at] = data.draw(st.integers(0, 255))
        elif how == "cut":
            del encoded[at : at + data.draw(st.integers(1, 9))]
        elif how == "insert":
            encoded[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        else:
            encoded += encoded[at:]
        if not encoded:
            return
    with suppress(WireError):
        wire.decode(bytes(encoded), type(sent))


@given(st.binary(max_size=200), st.sampled_from(KINDS))
def test_noise_is_refused(noise, kind):
    with pytest.raises(WireError):
        wire.decode(noise, kind)


def with_header(header, blobs=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return wire._HEAD.pack(wire.MAGIC, wire.VERSION, len(text)) + text + blobs


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (["TrainRequest", [0, 1, ["<f8", "C", 2**40, 2**40], None, None]], "a dimension"),
        (["TrainRequest", [0, 1, ["<f8", "C", 2**20, 2**20], None, None]], "cut off"),
        (["TrainRequest", [0, 1, ["<f8", "C", -1, 1], None, None]], "a dimension"),
        (["TrainRequest", [0, 1, ["<f8", "C", 1, 1, 1, 1], None, None]], "type, order and shape"),
        (["TrainRequest", [0, 1, ["|O", "C", 1], None, None]], "expected one of <f8"),
        (["TrainRequest", [0, 1, ["<f8", "A", 1], None, None]], "'C' or 'F'"),
        (["TrainRequest", [True, 1, None, None, None]], "a whole number"),
        (["TrainRequest", [2**70, 1, None, None, None]], "a whole number"),
        (["TrainRequest", [0, 1, None, None]], "a list of 5"),
        (["TrainRequest", {"round": 0}], "a list of 5"),
        (["ScoreReply", [0, None]], "a TrainRequest"),
        (b'["TrainRequest",[NaN,1,null,null,null]]', "found NaN, expected a finite number"),
        (b"[" * 10**5, ""),
        (b'"' + b"\xff" * 9 + b'"', "decode"),
    ],
)
def test_what_is_wrong_is_said(header, reason):
    with pytest.raises(WireError, match=f"(?i){reason}"):
        wire.decode(with_header(header), TrainRequest)


def test_values_are_checked_by_the_message_itself():
    sent = bytearray(wire.encode(ScoreReply(1, np.ones(2))))
    sent[-8:] = np.array([np.nan]).tobytes()
    with pytest.raises(WireError, match=r"ScoreReply\.scores is not finite"):
        wire.decode(bytes(sent), ScoreReply)


def test_nothing_may_follow():
    with pytest.raises(WireError, match="3 bytes too many"):
        wire.decode(wire.encode(messages.MomentsRequest()) + b"abc", messages.MomentsRequest)


def test_a_whole_array_is_not_taken_for_numbers_of_clusters():
    sent = messages.ScoreRequest(np.ones((1, 1)), np.zeros((1, 1), np.intp))
    with pytest.raises(WireError, match="'<i8'"):
        wire.decode(wire.encode(sent).replace(b'"<i8"', b'"<f8"'), messages.ScoreRequest)


def test_limits_hold_for_what_is_sent_too(monkeypatch):
    monkeypatch.setattr(wire, "MOST_BYTES", 100)
    with pytest.raises(WireError, match="expected at most 100"):
        wire.encode(ScoreReply(1, np.ones(99)))
    with pytest.raises(WireError, match="at most 100"):
        wire.decode(b"x" * 101, ScoreReply)


def test_newer_versions_are_told_from_damage():
    sent = bytearray(wire.encode(messages.MomentsRequest()))
    sent[4] = 9
    with pytest.raises(WireError, match="format version 9, expected version 1"):
        wire.decode(bytes(sent), messages.MomentsRequest)


def test_a_request_that_is_too_deep_to_be_one():
    with pytest.raises(WireError):
        wire.decode(with_header(["Ask", [1, "a", ["Ask", [1, "a", None, None]], None]]), Ask)


def test_replies_of_a_client_arrive_bit_for_bit():
    rows = Rows.from_array(np.random.default_rng(0).normal(size=(50, 3)))
    client = Client("a", rows, np.ones(2) / 2, seed=1, covariance_type="full")
    from fedgem.client import respond

    reply = respond(messages.MomentsRequest(full=True), client)
    assert_same(wire.decode(wire.encode(reply), MomentsReply), reply)
    part = messages.SharedPart(np.ones((1, 3)), np.ones(1), np.eye(3)[None])
    reply = respond(messages.ShareRequest(0, True, (part,)), client)
    assert_same(wire.decode(wire.encode(reply), ShareReply), reply)

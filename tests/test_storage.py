import io
import json
import os
import zipfile
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedgem import StoredFileError, storage
from fedgem.consensus import Consensus, ConsensusSettings
from fedgem.fitted import FittedMixture
from fedgem.gaussian.covariances import Gaussians
from fedgem.gaussian.statistics import Statistics
from fedgem.gaussian.subspace import whole
from fedgem.messages import Profile
from fedgem.server import Clusters, Components, Member, Round, Settings, Training
from fedgem.shared import SharedMixture
from fedgem.superclusters import merge_tree

STATISTICS = Statistics(np.array([2.0, 5.0]), np.array([[0.1, 0.2], [0.3, 1e300]]))
MEMBER = Member(Profile(7, np.array([0.25, 0.75])), STATISTICS, np.ones(2), np.zeros((2, 2)))
ROUND = Round(0, -1.5, 3, {"plant-1": -1.5}, {"plant-1": 64}, {"plant-1": 16}, 0.01)
SHARED = SharedMixture(
    replace(STATISTICS, overlap=np.eye(2)), np.array([0, 0]), np.ones((1, 2)), np.array([np.nan]), 3
)
SHARING = ConsensusSettings(10, "full", np.ones(2))
GAUSSIANS = Gaussians(np.zeros((2, 2)), np.tile(np.eye(2), (2, 1, 1)), "full")
EXAMPLES = [
    STATISTICS,
    Statistics(np.ones(1), np.ones((1, 2)), np.ones((1, 2))),
    MEMBER.profile,
    MEMBER,
    replace(MEMBER, profile=Profile(7, np.ones(2), np.array(2.0)), shapes=np.ones(2)),
    Settings(max_iter=3, tol=1e-4, cannot_link=True),
    ROUND,
    Training(("plant-1",), Settings(), 1, {"plant-1": MEMBER}, last=True, history=(ROUND,)),
    Components(
        ("a", "b"), np.array([0, 1]), np.zeros((2, 1)), np.ones(2), np.ones(2), np.array([3, 4])
    ),
    Clusters(np.zeros((1, 2)), np.ones((1, 1)), np.zeros(2, np.intp)),
    merge_tree(np.array([[0.0], [1.0], [5.0]]), np.ones(3), np.array([0, 0, 2])),
    SHARED,
    SHARING,
    Consensus(("plant-1",), SHARING, np.zeros(1, np.intp), np.array([2])),
    Consensus(
        ("plant-1",),
        SHARING,
        np.array([7]),
        np.array([2]),
        phase="shape",
        round=9,
        own={"plant-1": STATISTICS},
        tree=merge_tree(np.array([[0.0], [1.0]]), np.ones(2), np.array([0, 0])),
        mixtures=(SHARED, SHARED),
        spread=(SHARED,),
        best={2: SHARED, 3: SHARED},
        result=SHARED,
        history=(ROUND,),
    ),
    GAUSSIANS,
    Gaussians(np.zeros((2, 2))),
    whole(np.ones(2)),
    FittedMixture(
        np.zeros(2), np.ones(2), whole(np.ones(2)), GAUSSIANS, np.array([0, 0]), np.ones(2)
    ),
]


def assert_same(found, expected):
    """Compare values of every kind, their types included; lists come back as tuples."""
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        assert_array_equal(found, expected, strict=True)
    elif is_dataclass(expected):
        assert type(found) is type(expected)
        for field in fields(expected):
            assert_same(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, part in expected.items():
            assert_same(found[key], part)
    elif isinstance(expected, (list, tuple)):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert type(found) is type(expected)
        assert found == expected


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.npz"


@pytest.mark.parametrize("value", EXAMPLES, ids=lambda value: type(value).__name__)
def test_every_type_comes_back(path, value):
    storage.save(path, "test", {"value": value})
    assert_same(storage.load(path, "test")["value"], value)


def test_every_type_has_an_example():
    assert {type(value).__name__ for value in EXAMPLES} == set(storage._TYPES)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
arrays = st.sampled_from(
    [
        np.array([[0.1, np.nan, np.inf]]),
        np.float32([1e-45]),
        np.zeros((0, 3), np.intp),
        np.array(True),
        np.array("é"),
    ]
)
keys = st.text() | st.integers() | st.sampled_from(["type", "array", "dict", "number", "Ω"])
contents = st.recursive(
    scalars | arrays,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(keys, parts, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory):
    return tmp_path_factory.mktemp("storage") / "state.npz"


@settings(max_examples=60)
@given(content=contents)
def test_any_nesting_comes_back(shared_path, content):
    storage.save(shared_path, "test", content)
    assert_same(storage.load(shared_path, "test"), content)


@pytest.mark.parametrize("number", [np.int64(3), np.float64(0.1), np.bool_(True)])
def test_numpy_scalars_come_back_as_pythons(path, number):
    storage.save(path, "test", {number: number})
    assert_same(storage.load(path, "test"), {number.item(): number.item()})


def test_a_file_is_json_and_plain_arrays(path):
    storage.save(path, "test", {"a": np.arange(3), "b": MEMBER})
    with zipfile.ZipFile(path) as archive:
        head, *members = archive.namelist()
        assert head == "fedgem.json"
        assert set(json.loads(archive.read(head))) == {"format", "version", "content"}
        for member in members:
            np.load(io.BytesIO(archive.read(member)), allow_pickle=False)


@dataclass
class Unknown:
    x: int = 0


def fail(*args):
    raise OSError("No space left on device")


@pytest.mark.parametrize("bad", [{1, 2}, object(), b"bytes", Unknown(), 1j])
def test_what_has_no_place_in_a_file_is_refused(path, bad):
    with pytest.raises(TypeError, match=rf"^{type(bad).__name__} has no place in a stored file\.$"):
        storage.save(path, "test", [bad])
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "broken"),
    [
        ({"x": np.array([object()])}, None),  # NumPy refuses in the middle of the file
        ({"x": 1}, (os, "fsync")),
        ({"x": 1}, (Path, "replace")),
    ],
)
def test_a_failing_write_leaves_everything_as_it_was(path, monkeypatch, content, broken):
    storage.save(path, "test", {"x": 0})
    before = path.read_bytes()
    if broken:
        monkeypatch.setattr(*broken, fail)
    with pytest.raises((OSError, ValueError), match=r"No space|Object arrays"):
        storage.save(path, "test", content)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_write_replaces_and_leaves_nothing_else(path):
    for x in range(2):
        storage.save(path, "test", {"x": x})
    assert storage.load(path, "test") == {"x": 1}
    assert list(path.parent.iterdir()) == [path]


def rewritten(path, **changes):
    """Write the header again with some changes."""
    with zipfile.ZipFile(path) as archive:
        head = json.loads(archive.read("fedgem.json")) | changes
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fedgem.json", json.dumps(head))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": "fedgem checkpoint"}, r"holds a fedgem checkpoint, expected a test\.$"),
        ({"version": 2}, r"was written by a newer fedgem \(format version 2; .* Upgrade fedgem"),
        ({"version": "x"}, r"is damaged or was not written by fedgem"),
        ({"content": {"type": "Nothing"}}, r"is damaged or was not written by fedgem"),
        ({"content": {"array": "a9"}}, r"is damaged or was not written by fedgem"),
    ],
)
def test_another_kind_of_file_is_refused(path, changes, sentence):
    storage.save(path, "test", {"x": 0})
    rewritten(path, **changes)
    with pytest.raises(StoredFileError, match=sentence):
        storage.load(path, "test")


def test_a_missing_file_and_a_folder_are_refused(path, tmp_path):
    with pytest.raises(StoredFileError, match=r"state\.npz does not exist\.$"):
        storage.load(path, "test")
    with pytest.raises(StoredFileError, match="is damaged or was not written by fedgem"):
        storage.load(tmp_path, "test")


def test_an_npz_of_someone_else_is_refused(path):
    np.savez(path, x=np.ones(3))
    with pytest.raises(StoredFileError, match="was not written by fedgem"):
        storage.load(path, "test")


def test_damage_is_noticed_wherever_it_is(path):
    content = {"x": np.arange(4.0), "name": "plant-1"}
    storage.save(path, "test", content)
    whole = path.read_bytes()
    flips = [(i, bytes([byte ^ 0xFF])) for i, byte in enumerate(whole)]
    damaged = [whole[:n] for n in range(0, len(whole), 5)]
    damaged += [whole[:i] + flipped + whole[i + 1 :] for i, flipped in flips]
    refusals = []
    for some in damaged:
        path.write_bytes(some)
        try:
            # Some bytes of a zip mean nothing to a reader: dates, for one.
            assert_same(storage.load(path, "test"), content)
        except StoredFileError as error:
            refusals.append(str(error))
    assert len(refusals) > len(damaged) / 2
    assert all("is damaged or was not written by fedgem" in refusal for refusal in refusals)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoredFileError, match=r"found no folder .*nowhere, expected one to write"):
        storage.save(tmp_path / "nowhere" / "x.npz", "example", {})

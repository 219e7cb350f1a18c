import csv
import importlib
import json
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def accuracy(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("accuracy")


def test_iris_is_measured_and_reported_and_not_measured_again(accuracy, tmp_path, capsys):
    command = ["--data", "iris", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]
    accuracy.main(command)
    measured = (tmp_path / "given.jsonl").read_text()
    row = json.loads(measured)
    assert row["n_classes"] == 3
    assert row["error"] == abs(row["n_clusters"] - 3)
    assert min(row["local"], row["global"], row["alone"]) > 0.5
    assert "iris (3)" in capsys.readouterr().out
    assert "| iris (3) | 1 |" in (tmp_path / "given.md").read_text()
    with (tmp_path / "given.csv").open() as file:
        assert [line["data"] for line in csv.DictReader(file)] == ["iris"]

    accuracy.main(command)
    assert (tmp_path / "given.jsonl").read_text() == measured


def test_unknown_data_is_refused(accuracy, tmp_path, capsys):
    with pytest.raises(SystemExit):
        accuracy.main(["--data", "irises", "--out", str(tmp_path)])
    assert "--data: found 'irises', expected some of mnist, " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["blobs-8", "long-blobs-8"])
def test_the_oracle_is_right_on_clusters_far_apart(accuracy, name):
    split, oracle = accuracy.DATA_SETS[name].draw(0)
    local, global_ = accuracy.scores(oracle, split.test_labels)
    assert local > 0.99
    assert global_ > 0.99
    assert {name: X.shape for name, X in split.train.items()} == dict.fromkeys(split.test, (500, 4))


def test_bars(accuracy):
    oracle = {"oracle_local": 0.9, "oracle_global": 0.8}
    means = {"local": 0.86, "global": 0.74, "error": 1.0}
    identity = {"identity_local": 0.85, "identity_global": 0.75}

    target = accuracy.target_of("long-blobs-6", oracle, auto=False)
    assert [target.local, target.global_, target.error] == pytest.approx([0.85, 0.75, 1])
    assert accuracy.verdict("long-blobs-6", means | identity, target) == "NO: global, identity"
    assert accuracy.target_of("long-blobs-4", oracle, auto=False) is None
    assert accuracy.verdict("long-blobs-4", means | identity, None) == "NO: identity"

    target = accuracy.target_of("cifar-10", {}, auto=True)
    assert [target.local, target.global_, target.error] == pytest.approx([0.52, 0.47, 3])
    assert accuracy.verdict("cifar-10", means, target) == "yes"
    assert accuracy.verdict("iris", means, accuracy.target_of("iris", {}, auto=False)) == ""


def test_rows_of_keel_are_not_truncated(accuracy):
    X, y = accuracy.DATA_SETS["segment"].load()
    assert X.shape == (2310, 19)
    assert X.max() > 1000
    assert not np.array_equal(X, np.rint(X))
    np.testing.assert_array_equal(np.bincount(y), 330)

"""OpenML, through scikit-learn's cache: what it has stored, it does not ask the network for."""

import gzip
import hashlib
import json

import numpy as np
import pytest

from fedgem import InputError
from fedgem.datasets import load_openml

COLUMNS = {"length": "numeric", "colour": "nominal", "width": "numeric", "kind": "nominal"}
ROWS = [(1.5, "red", 2, "B"), (2.5, "blue", 3, "A"), (3.5, "red", "?", "B")]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return a function that stores a table in scikit-learn's cache."""
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))

    def write(path, text):
        file = tmp_path / "openml" / "openml.org" / f"{path}.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(text.encode()))

    def put(columns, rows, target="kind"):
        lines = ["@relation things"]
        features = []
        for j, (name, kind) in enumerate(columns.items()):
            values = sorted({row[j] for row in rows}) if kind == "nominal" else []
            lines.append(f"@attribute {name} {'{' + ','.join(values) + '}' if values else kind}")
            features.append(
                {
                    "index": str(j),
                    "name": name,
                    "data_type": kind,
                    "nominal_value": values,
                    "is_target": str(name == target).lower(),
                    "is_ignore": "false",
                    "is_row_identifier": "false",
                    "number_of_missing_values": "0",
                }
            )
        lines += ["@data", *(",".join(map(str, row)) for row in rows)]
        arff = "\n".join(lines) + "\n"
        about = {
            "id": "7",
            "name": "things",
            "version": "2",
            "description": "",
            "format": "ARFF",
            "status": "active",
            "licence": "CC0",
            "citation": "Nobody (2020)",
            "file_id": "9",
            "url": "https://www.openml.org/data/v1/download/9/things.arff",
            "md5_checksum": hashlib.md5(arff.encode()).hexdigest(),
        }
        quality = [{"name": "NumberOfInstances", "value": str(len(rows))}]
        api = "api/v1/json/data"
        write(f"{api}/7", json.dumps({"data_set_description": about}))
        write(f"{api}/features/7", json.dumps({"data_features": {"feature": features}}))
        write(f"{api}/qualities/7", json.dumps({"data_qualities": {"quality": quality}}))
        write("data/v1/download/9/things.arff", arff)

    return put


def test_numeric_columns_and_the_classes(store):
    store(COLUMNS, ROWS)
    dataset = load_openml(7)
    assert dataset.name == "things-2"
    assert dataset.feature_names == ("length", "width")
    np.testing.assert_array_equal(dataset.X, [[1.5, 2], [2.5, 3], [3.5, np.nan]])
    assert dataset.X.dtype == np.float64
    assert dataset.class_names == ("A", "B")
    np.testing.assert_array_equal(dataset.y, [1, 0, 1])
    assert (dataset.licence, dataset.citation) == ("CC0", "Nobody (2020)")
    assert dataset.source == "https://www.openml.org/d/7"


@pytest.mark.parametrize(
    ("columns", "rows", "target", "message"),
    [
        (
            {"colour": "nominal", "kind": "nominal"},
            [("red", "A"), ("blue", "B")],
            "kind",
            "found only columns of categories, expected numeric ones.",
        ),
        (COLUMNS, ROWS, "length", "found a target of fractions, expected classes."),
        (COLUMNS, ROWS, "none", "found no single default target, expected one that has classes."),
        (
            {"remark": "string", "kind": "nominal"},
            [("a", "A"), ("b", "B")],
            "kind",
            "cannot be loaded: STRING attributes are not supported",
        ),
    ],
)
def test_what_cannot_be_clustered_is_refused(store, columns, rows, target, message):
    store(columns, rows, target)
    with pytest.raises(InputError, match=f"^OpenML data set 7: {message}"):
        load_openml(7)

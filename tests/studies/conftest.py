"""A study that takes a second: few rows, few methods."""

import re
from pathlib import Path

import pytest

from fedgem.studies.cases import blobs
from fedgem.studies.catalogue import VARIED, lines_of, ranks_of, table_of
from fedgem.studies.study import Measurement, Study

PAGE = Path(__file__).parents[2] / "docs" / "studies.md"
(MINE,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)


@pytest.fixture
def tiny():
    cases = [
        blobs("nominal", x=x, min_distance=x, n_clients=3, n_train=180, n_test=90, upsilons=(1.0,))
        for x in (4.0, 8.0)
    ]
    return Study(
        "tiny",
        "a small study",
        Measurement("tiny-rows", tuple(cases), lambda entry: entry.name == "FedGEM, paper"),
        {"tiny": table_of("Tiny & small", VARIED, "R_min")},
        {
            "lines": lines_of("ari_local", "$R_{min}$"),
            "clusters": lines_of("n_clusters", "$R_{min}$", log=True),
            "ranks": ranks_of("ari_local", "local ARI"),
        },
    )


@pytest.fixture
def declare_method(tmp_path, monkeypatch):
    """Write a file that declares a method; the list is as it was afterwards."""
    from fedgem.baselines import METHODS

    def write(text=MINE):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return str(path)

    before = dict(METHODS)
    yield write
    METHODS.clear()
    METHODS.update(before)

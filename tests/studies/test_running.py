import csv
import json
import multiprocessing
from dataclasses import replace

import numpy as np
import pytest

from fedgem import InputError, StoredFileError
from fedgem.studies import rows as stored
from fedgem.studies import running
from fedgem.studies.running import Options, rows_of, run_study
from fedgem.studies.study import Measurement


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def without_seconds(rows):
    return sorted(
        ({k: v for k, v in row.items() if k != "seconds"} for row in rows),
        key=lambda row: str(stored.key(row)),
    )


class Counted:
    """Counts the tasks and the rows of a run; Ctrl-C after some rows."""

    def __init__(self, stop_after=None):
        self.n_tasks, self.rows, self.stop_after = None, [], stop_after

    def begin(self, n_tasks):
        self.n_tasks = n_tasks

    def on_row(self, row):
        self.rows.append(row)
        if len(self.rows) == self.stop_after:
            raise KeyboardInterrupt


def run(study, options, stop_after=None):
    counted = Counted(stop_after)
    tables = run_study(study, options, counted.begin, counted.on_row)
    return tables, counted


def test_the_method_of_the_docs_is_measured_shown_and_not_measured_again(
    tiny, declare_method, tmp_path
):
    out = tmp_path / "out"
    options = Options(2, out, methods=["FedGEM, paper", declare_method()])
    (table,), counted = run(tiny, options)
    assert counted.n_tasks == len(counted.rows) == 2 * 2 * 2
    assert names(out / "rows") == ["tiny-rows.parquet"]
    assert names(out / "tiny") == [
        *("clusters.png", "clusters.svg", "lines.png", "lines.svg", "ranks.png", "ranks.svg"),
        *("tiny.csv", "tiny.md", "tiny.tex"),
    ]

    rows = stored.read(rows_of(tiny.measurement, out))
    assert without_seconds(rows) == without_seconds(counted.rows)
    assert {row["error"] for row in rows} == {None}
    with (out / "tiny" / "tiny.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["method"] for line in lines] == ["FedGEM, paper", "client means"] * 2
    for line in lines:
        x = float(line["data"].removeprefix("nominal, R_min = "))
        own = [r for r in rows if r["method"] == line["method"] and r["x"] == x]
        for column, name in (("ARI local", "ari_local"), ("SS local", "silhouette_local")):
            values = [row[name] for row in own]
            expected = f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
            assert line[column] == expected

    # Complete: the same command only draws anew.
    (out / "tiny" / "tiny.md").unlink()
    (again,), counted = run(tiny, options)
    assert counted.n_tasks == 0
    assert again == table
    assert (out / "tiny" / "tiny.md").exists()
    _, counted = run(tiny, Options(1, out, methods=["client*"], force=True))
    assert counted.n_tasks == 2


def test_after_ctrl_c_it_goes_on_with_what_is_missing(tiny, tmp_path):
    options, path = Options(2, tmp_path), rows_of(tiny.measurement, tmp_path)
    with pytest.raises(KeyboardInterrupt, match=r"Stopped; 2 of 4 tasks are measured and kept in"):
        run(tiny, options, stop_after=3)
    assert not path.exists()
    journal = stored.journal_of(path)
    assert len(stored.read(path)) == 3
    # As after a kill in the middle of a line.
    journal.write_text(journal.read_text() + "\n" + '{"data": "nominal", "x"')
    _, counted = run(tiny, options)
    assert counted.n_tasks == 1
    assert len(stored.read(path)) == 4
    assert not journal.exists()


def test_processes_measure_the_same_and_do_not_outlive_ctrl_c(tiny, declare_method, tmp_path):
    methods = [declare_method()]
    run(tiny, Options(1, tmp_path / "one", methods=methods))
    two = Options(1, tmp_path / "two", methods=methods, jobs=2)
    with pytest.raises(KeyboardInterrupt, match="0 of 2"):
        run(tiny, two, stop_after=1)
    assert multiprocessing.active_children() == []
    run(tiny, two)
    first, second = (
        stored.read(rows_of(tiny.measurement, tmp_path / out)) for out in ("one", "two")
    )
    assert without_seconds(first) == without_seconds(second)


def test_dear_cases_take_some_methods_and_seeds_and_timed_tasks_do_not_run_side_by_side(
    tiny, declare_method, tmp_path
):
    cheap, dear = tiny.measurement.cases
    dear = replace(dear, methods=("client means",), most_seeds=1)
    timed = replace(tiny, measurement=Measurement("timed", (cheap, dear), is_timed=True))
    options = Options(2, tmp_path, methods=["FedGEM, paper", declare_method()], jobs=2)
    others = []  # processes that are there when a row is
    run_study(timed, options, on_row=lambda row: others.extend(multiprocessing.active_children()))
    assert others == []
    rows = stored.read(rows_of(timed.measurement, tmp_path))
    assert [(r["method"], r["seed"]) for r in rows if r["x"] == dear.x] == [("client means", 0)]
    assert len(rows) == 5


def test_a_method_that_fails_is_a_row_and_the_study_goes_on(tiny, declare_method, tmp_path):
    broken = declare_method(
        "from fedgem.baselines import Method, method\n"
        '@method("broken")\n'
        "class Broken(Method):\n"
        "    engine = random_state = None\n"
        "    def _find(self, federation):\n"
        "        raise ValueError('no\\nluck')\n"
    )
    (table,), _ = run(tiny, Options(2, tmp_path, methods=["FedGEM, paper", broken]))
    texts = [[cell.text for cell in line] for line in table.lines]
    assert [line[2] for line in texts if line[1] == "broken"] == ["failed"] * 2
    assert "Failed: broken on nominal, 4 times: ValueError: no luck" in table.notes
    assert all("±" in line[2] for line in texts if line[1] == "FedGEM, paper")


def test_without_matplotlib_there_are_tables(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "can_draw", lambda: False)
    run(tiny, Options(1, tmp_path))
    assert names(tmp_path / "tiny") == ["tiny.csv", "tiny.md", "tiny.tex"]


def test_what_is_wrong_is_said(tiny, declare_method, tmp_path):
    with pytest.raises(InputError, match="--data: found 'mars', expected some of: nominal"):
        run_study(tiny, Options(1, tmp_path, data=["mars"]))
    with pytest.raises(InputError, match="--methods: found 'k-'"):
        run_study(tiny, Options(1, tmp_path, methods=["k-"]))
    with pytest.raises(InputError, match=r"nothing\.py: found no Python file"):
        run_study(tiny, Options(1, tmp_path, methods=["nothing.py"]))
    with pytest.raises(InputError, match="found no method"):
        run_study(tiny, Options(1, tmp_path, methods=[declare_method("x = 1")]))
    path = rows_of(tiny.measurement, tmp_path)
    path.parent.mkdir()
    path.write_text(json.dumps({}))
    with pytest.raises(StoredFileError, match="found no Parquet file"):
        run_study(tiny, Options(1, tmp_path))
    assert names(tmp_path) == ["mine.py", "rows"]

"""The command line, mostly inside this process, and as a real one where that matters."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from rich.progress import Progress
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

import fedgem
from fedgem import FedGEM, rendering
from fedgem.cli import app

PROGRAMS = Path(sys.executable).parent
RUN_FILES = ["clusters.csv", "history.csv", "labels", "members.csv", "model.npz", "run.json"]


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def start(*arguments, cwd):
    """Start the real program, where it is on the path."""
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        [str(a) for a in arguments],
        cwd=cwd,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def names(folder="."):
    return sorted(path.name for path in Path(folder).iterdir())


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


CENTRES = np.array([[0, 0], [9, 0], [0, 9], [9, 9]])
SEEN = {"a": [0, 1], "b": [0, 2], "c": [1, 2, 3], "d": [0, 3]}


@pytest.fixture(scope="module")
def plants(tmp_path_factory):
    """Four clients that have two or three of four clusters, a CSV file each."""
    folder = tmp_path_factory.mktemp("plants")
    rng = np.random.default_rng(0)
    for client, seen in SEEN.items():
        centres = CENTRES[np.repeat(seen, 20)]
        X = centres + rng.normal(size=centres.shape)
        frame = pd.DataFrame(X, columns=["rms", "temperature"])
        frame.insert(0, "id", [f"{client}{i}" for i in range(len(frame))])
        frame.to_csv(folder / f"{client}.csv", index=False)
    return folder


def fit_arguments(plants, out):
    files = [plants / f"{client}.csv" for client in SEEN]
    options = ["--id-column", "id", "--no-scale", "--clusters-per-client", "2,2,3,2"]
    return ["fit", *files, "--out", out, *options]


@pytest.fixture(scope="module")
def run(plants):
    """The folder of a run over the plants."""
    out = plants / "run"
    assert call(*fit_arguments(plants, out)).exit_code == 0
    return out


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- the program itself


def test_the_command_line_starts_without_what_takes_long_to_import():
    code = "import sys, fedgem.cli; print({'numpy', 'numba', 'sklearn'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


def test_version():
    assert call("--version").output == f"fedgem {fedgem.__version__}\n"


@pytest.mark.parametrize("command", ["demo", "fit", "predict", "show"])
def test_help_has_an_example(command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert f"Example:\n    fedgem {command} " in result.output
    assert command in call("--help").output


def test_help_says_where_scaling_is_on():
    text = " ".join(call("fit", "--help").output.split())
    assert "On by default here, off by default in Python" in text
    assert "by default each client finds its own number" in text


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["cluster"],
        ["fit"],
        ["fit", "a.csv"],
        ["fit", "a.csv", "--out", "run", "--clusters-per-client", "many"],
        ["fit", "a.csv", "--out", "run", "--upsilon", "large"],
        ["fit", "a.csv", "--out", "run", "--upsilon"],
        ["fit", "a.csv", "--out", "run", "--columns", "rms,rms"],
        ["fit", "a.csv", "--out", "run", "--seed", "-1"],
        ["demo", "--plants", "2"],
        ["predict", "run"],
    ],
)
def test_wrong_usage_ends_with_2(arguments, here):
    assert call(*arguments).exit_code == 2
    assert not list(here.iterdir())


# --- demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A folder where the real program ran `fedgem demo`, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    code, out, err = finish(start("fedgem", "demo", "--plants", "4", "--seed", "1", cwd=folder))
    assert code == 0
    assert err == ""
    return folder, out


def test_demo_shows_the_modes_it_found_beside_the_truth(demo):
    _, out = demo
    assert re.search(r"Found 6 clusters \(90%: [\d to]+\); in truth there are 6 modes", out)
    assert re.search(r"\d   healthy +[\d,]+ +\d+\.\d% +4 +4\n", out)
    assert re.search(r"plant-01 ( +[●·]){6}\n", out)
    assert re.search(r"Adjusted Rand index: 0\.9\d\d", out)
    assert "Nobody said how many modes there are" in " ".join(out.split())


def test_demo_looks_well_in_a_pipe(demo):
    _, out = demo
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_demo_keeps_the_truth_out_of_the_plants_files(demo):
    folder, _ = demo
    files = sorted((folder / "fedgem-demo" / "plants").iterdir())
    assert [f.name for f in files] == [f"plant-0{i}.csv" for i in range(1, 5)]
    assert all("mode" not in f.read_text() for f in files)
    truth = pd.read_csv(folder / "fedgem-demo" / "truth.csv")
    assert set(truth.columns) == {"client", "row", "mode"}


def test_the_commands_that_demo_prints_work_as_they_stand(demo):
    folder, out = demo
    commands = out[out.index("Next, ") :].split("\n", 1)[1]
    code, shown, err = finish(start("bash", "-euc", commands, cwd=folder))
    assert (code, err) == (0, "")
    assert shown.count("Who has which cluster") == 2
    assert shown.splitlines()[-1].count(",") == 2
    of_demo = folder / "fedgem-demo" / "run" / "labels"
    for labels in (folder / "my-run" / "labels").iterdir():
        assert labels.read_text() == (of_demo / labels.name).read_text()


def test_demo_as_json_is_what_its_files_say(here):
    facts = json.loads(call("demo", "--plants", 3, "--out", "x", "--json").stdout)
    truth = pd.read_csv("x/truth.csv")
    found = [
        cluster
        for client in truth["client"].unique()
        for cluster in pd.read_csv(f"x/run/labels/{client}.csv")["cluster"]
    ]
    score = adjusted_rand_score(truth["mode"], found)
    assert facts["truth"]["adjusted_rand_index"] == pytest.approx(score)
    assert facts["n_clusters"] == len(set(found))
    assert facts["n_rows"] == len(found)
    assert json.loads(Path("x/run/run.json").read_text())["command"].startswith("fedgem fit x/")


def test_demo_replaces_its_own_folder_when_forced(here):
    assert call("demo", "--plants", 3, "--out", "x").exit_code == 0
    before = Path("x/truth.csv").read_text()
    refused = call("demo", "--plants", 3, "--seed", 1, "--out", "x")
    assert refused.exit_code == 1
    assert "x: found a folder of that name" in refused.stderr
    assert Path("x/truth.csv").read_text() == before
    assert call("demo", "--plants", 3, "--seed", 1, "--out", "x", "--force").exit_code == 0
    assert Path("x/truth.csv").read_text() != before
    assert names() == ["x"]


# --- fit


def test_fit_writes_what_the_estimator_finds(plants, run):
    clients = {
        client: pd.read_csv(plants / f"{client}.csv", float_precision="round_trip").drop(
            columns="id"
        )
        for client in SEEN
    }
    model = FedGEM([2, 2, 3, 2], random_state=0).fit(clients)
    assert names(run) == RUN_FILES
    clusters = table(run / "clusters.csv")
    assert len(clusters) == model.n_clusters_ == 4
    means = [[float(c["rms"]), float(c["temperature"])] for c in clusters]
    np.testing.assert_array_equal(means, model.means_)
    assert [int(c["clients"]) for c in clusters] == model.memberships_.sum(axis=0).tolist()
    for client, labels in zip(SEEN, model.labels_, strict=True):
        lines = table(run / "labels" / f"{client}.csv")
        assert [int(line["cluster"]) for line in lines] == labels.tolist()
        assert lines[3]["id"] == f"{client}3"
    for client, has in zip(table(run / "members.csv"), model.memberships_, strict=True):
        shares = [client[f"cluster_{k}"] for k in range(4)]
        assert [share != "" for share in shares] == has.tolist()
        assert sum(float(share) for share in shares if share) == pytest.approx(1)
    history = table(run / "history.csv")
    assert len(history) == model.n_iter_
    assert float(history[-1]["objective"]) == model.history_[-1].objective


def test_fit_numbers_the_rows_of_a_file_without_ids(plants, here):
    result = call("fit", plants / "a.csv", "--out", "run", "--columns", "temperature, rms")
    assert result.exit_code == 0
    assert [line["row"] for line in table(Path("run/labels/a.csv"))[:2]] == ["0", "1"]
    assert list(table(Path("run/clusters.csv"))[0])[-2:] == ["temperature", "rms"]


def test_fit_says_what_it_did_with_the_scale(plants, here):
    command = ["fit", plants / "a.csv", "--id-column", "id", "--out"]
    scaled, unscaled = call(*command, "one").stdout, call(*command, "two", "--no-scale").stdout
    assert "scaled first (on by default here, off by default in Python)" in scaled
    assert "not scaled (--no-scale)" in unscaled
    assert json.loads(Path("two/run.json").read_text())["settings"]["scale"] is False


def test_fit_takes_the_number_of_clusters_in_four_ways(plants, run, here):
    Path("k.csv").write_text("client,clusters,site\nc,3,x\nb,2,y\na,2,z\nd,2,z\nelsewhere,9,z\n")
    Path("k.json").write_text('{"a": 2, "b": 2, "c": 3, "d": 2}')
    for number in ("k.csv", "k.json"):
        files = [plants / f"{client}.csv" for client in SEEN]
        command = ["fit", *files, "--id-column", "id", "--no-scale", "--out", "x", "--force"]
        assert call(*command, "--clusters-per-client", number).exit_code == 0
        assert Path("x/clusters.csv").read_text() == (run / "clusters.csv").read_text()
    assert call(*command).exit_code == 0
    default = json.loads(Path("x/run.json").read_text())["settings"]["clusters_per_client"]
    assert default == FedGEM().n_local_components


def test_fit_joins_components_by_upsilon_as_in_the_paper(plants, here):
    result = call(*fit_arguments(plants, "run"), "--upsilon", "1.5", "--json")
    facts = json.loads(result.stdout)
    assert facts["upsilon"] == facts["settings"]["upsilon"] == 1.5
    assert "n_clusters_interval" not in facts
    assert facts["n_clusters"] == 4
    assert "Clusters: 4, of 9 components." in call("show", "run").stdout


@pytest.mark.parametrize("suffix", ["parquet", "feather", "npy"])
def test_fit_finds_the_same_in_every_format(suffix, plants, run, here):
    for client in SEEN:
        frame = pd.read_csv(plants / f"{client}.csv")
        if suffix == "npy":
            np.save(client, frame[["rms", "temperature"]])
        else:
            getattr(frame, f"to_{suffix}")(f"{client}.{suffix}")
    files = [f"{client}.{suffix}" for client in SEEN]
    options = ["--no-scale", "--clusters-per-client", "2,2,3,2"]
    if suffix != "npy":
        options += ["--id-column", "id"]
    result = call("fit", *files, "--out", "x", *options)
    assert result.exit_code == 0
    for client in SEEN:
        found = [line["cluster"] for line in table(Path(f"x/labels/{client}.csv"))]
        assert found == [line["cluster"] for line in table(run / "labels" / f"{client}.csv")]
    assert ("column 0" in result.stdout) == (suffix == "npy")


def test_fit_as_json_prints_one_object_and_nothing_else(plants, run, here):
    result = call(*fit_arguments(plants, "run"), "--json")
    facts = json.loads(result.stdout)
    assert result.stderr == ""
    assert facts["n_clusters"] == 4
    assert sum(cluster["rows"] for cluster in facts["clusters"]) == facts["n_rows"] == 180
    assert facts["clusters"][0]["clients"] == ["a", "b", "d"]
    shown = json.loads(call("show", run, "--json").stdout)
    assert facts["n_clusters_interval"] == [4, 4]
    assert "upsilon" not in facts
    assert "upsilon" not in facts["settings"]
    assert shown | {"command": 0} == {k: v for k, v in facts.items() if k != "out"} | {"command": 0}


def test_progress_moves_with_the_rounds(plants, here, monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(rendering, "notes", screen)
    shown = []
    monkeypatch.setattr(Progress, "update", lambda *_, description, **__: shown.append(description))
    assert call("fit", plants / "a.csv", "--id-column", "id", "--out", "run").exit_code == 0
    assert shown[:4] == [
        "Agreeing on a scale",
        "Agreeing on a scale, round 1",
        "Looking at all rows",
        "Looking at all rows, round 1",
    ]
    assert shown[4:7] == [
        "Fitting at each client",
        "Spreading components, round 1",
        "Spreading components, round 2",
    ]
    assert any(re.fullmatch(r"How many clusters: [\d, ]+\?, round \d+", text) for text in shown)
    assert "Reading the clients' rows" in screen.file.getvalue()


def test_fit_goes_on_after_ctrl_c(here):
    rng = np.random.default_rng(0)
    for client in "ab":
        np.save(client, rng.normal(size=(5_000, 8)))
    command = ["fedgem", "fit", "a.npy", "b.npy", "--clusters-per-client", "8", "--out"]
    process = start(*command, "run", cwd=here)
    while not Path("run.checkpoint").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert re.fullmatch(r"Stopped after round \d+\. The same command goes on from there\.\n", err)
    assert names() == ["a.npy", "b.npy", "run.checkpoint"]
    assert finish(start(*command, "run", cwd=here))[0] == 0
    assert call(*command[1:], "calm").exit_code == 0
    assert names() == ["a.npy", "b.npy", "calm", "run"]
    for name in ("clusters.csv", "members.csv", "labels/a.csv", "labels/b.csv"):
        assert (here / "run" / name).read_bytes() == (here / "calm" / name).read_bytes()


def test_ctrl_c_before_the_first_round(plants, here, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(FedGEM, "fit", interrupted)
    result = call(*fit_arguments(plants, "run"))
    assert result.exit_code == 130
    assert result.stderr == "Stopped before the first round was over; nothing was written.\n"
    stopped = call("demo")
    assert (stopped.exit_code, stopped.stderr) == (130, "Stopped; nothing was written.\n")
    assert not list(here.iterdir())


# --- bad input

GOOD = "x,y\n1,2\n3,4\n5,7\n"
FILES = {
    "good.csv": GOOD,
    "nan.csv": "x,y\n1,2\n3,\n5,6\n",
    "infinite.csv": "x,y\n1,2\ninf,3\n5,6\n",
    "text.csv": "x,y\n1,red\n3,4\n",
    "others.csv": "x,z\n1,2\n3,4\n",
    "order.csv": "y,x\n1,2\n3,4\n",
    "more.csv": "x,y,z\n1,2,3\n3,4,5\n",
    "empty.csv": "",
    "header.csv": "x,y\n",
    "short.csv": "x,y\n1,2\n",
    "ragged.csv": "x,y\n1,2\n3\n",
    "twice.csv": "x,x\n1,2\n",
    "constant.csv": "x,y\n1,7\n2,7\n3,7\n",
    "damaged.parquet": "PAR1 and no more",
    "damaged.npy": "\x93NUMPY and no more",
    "notes.txt": "hello",
    "again/good.csv": GOOD,
    "full/notes.txt": "keep me",
    "k.csv": "client,clusters\ngood,two\n",
    "twice-k.csv": "client,clusters\ngood,2\ngood,3\n",
    "no-k.csv": "client,n\ngood,2\n",
    "gap-k.csv": "client,clusters\ngood\n",
    "other-k.json": '{"elsewhere": 2}',
    "list-k.json": "[1, 2]",
}
GOOD_AND = ["good.csv", "--out", "run"]
K = [*GOOD_AND, "--clusters-per-client"]
BAD = {
    "nan.csv": "Client 'nan', column 'y', row 1: found NaN, expected a finite number",
    "infinite.csv": "Client 'infinite', column 'x', row 1: found inf, expected a finite number",
    "text.csv": "text.csv, column 'y': found text .* in row .*; leave it out with --columns",
    "others.csv": "Client 'others': found column 2 to be 'z', expected 'y' as at client 'good'.",
    "order.csv": "found column 1 to be 'y', expected 'x' .* in another order",
    "more.csv": "Client 'more': found 3 columns, expected the 2 of client 'good'.*'z'",
    "empty.csv": "empty.csv: found an empty file",
    "header.csv": "Client 'header': found no rows",
    "ragged.csv": "ragged.csv: cannot be read: .*Expected 2 columns, got 1",
    "twice.csv": "twice.csv: found two columns called 'x'",
    "damaged.parquet": "damaged.parquet: cannot be read",
    "damaged.npy": "damaged.npy: cannot be read",
    "notes.txt": "notes.txt: found a file of type '.txt', expected one of .csv",
    "missing.csv": "missing.csv: found no such file",
    "full": "full: found a folder, expected a file",
    "again/good.csv": "good.csv and again/good.csv: found two clients called 'good'",
}
BAD_CALLS = [
    *(([*GOOD_AND, name], message) for name, message in BAD.items()),
    ([*K, "2", "short.csv"], "Client 'short': found 1 row .*expected at least 2, one for each"),
    ([*GOOD_AND, "--upsilon", "2"], "--clusters-per-client: found 'auto', expected a number"),
    (["constant.csv", "--out", "run"], "column 'y': found the value 7 in every row"),
    ([*GOOD_AND, "--columns", "x,q"], "good.csv: found no column 'q' among 'x', 'y'"),
    ([*GOOD_AND, "--id-column", "q"], "good.csv: found no column 'q'"),
    ([*GOOD_AND, "--upsilon", "-1"], "upsilon: found -1.0, expected None, a number from 0"),
    ([*K, "0"], "Client 'good', --clusters-per-client: found 0, expected a whole number from 1"),
    ([*K, "2,3"], "--clusters-per-client: found 2 values, expected one for each client, 1 in all"),
    ([*K, "4"], "Client 'good': found 3 rows .*expected at least 4, one for each"),
    ([*K, "k.csv"], "Client 'good', --clusters-per-client: found 'two'"),
    ([*K, "gap-k.csv"], "Client 'good', --clusters-per-client: found ''"),
    ([*K, "twice-k.csv"], "twice-k.csv: found client 'good' twice"),
    ([*K, "no-k.csv"], "no-k.csv: .*expected a CSV file with the columns client and clusters"),
    ([*K, "list-k.json"], "list-k.json: .*or a JSON object"),
    ([*K, "other-k.json"], "found .*'elsewhere'.*, expected a value for client 'good'"),
    ([*K, "missing.json"], "missing.json: No such file or directory"),
    (["good.csv", "--out", "full"], "full: found a folder of that name.*--force"),
    (["good.csv", "--out", "full", "--force"], "full: found 'notes.txt', which fedgem did not"),
    (["good.csv", "--out", "notes.txt", "--force"], "notes.txt: found a file, which --force"),
    (["good.csv", "--out", "notes.txt/run"], "notes.txt.*: (Not a directory|File exists)"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD_CALLS, ids=[" ".join(a) for a, _ in BAD_CALLS]
)
def test_bad_input_is_one_clear_sentence_and_leaves_nothing(arguments, message, here):
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text, "latin-1")
    before = sorted(here.rglob("*"))
    result = call("fit", *arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert re.search(f"^Error: .*{message}", result.stderr)
    assert result.stderr.count("\n") == 1
    assert sorted(here.rglob("*")) == before


def test_bad_input_to_the_real_program(here):
    Path("a.csv").write_text("x,y\n1,2\n3,nan\n")
    code, out, err = finish(start("fedgem", "fit", "a.csv", "--out", "run", cwd=here))
    assert (code, out) == (1, "")
    assert err.startswith("Error: Client 'a', column 'y', row 1: found NaN")
    assert err.count("\n") == 1
    assert names() == ["a.csv"]


# --- predict


def test_predict_says_what_fit_said(plants, run):
    for client in SEEN:
        file = plants / f"{client}.csv"
        result = call("predict", run, file, "--client", client, "--id-column", "id")
        lines = list(csv.DictReader(io.StringIO(result.stdout)))
        labels = table(run / "labels" / f"{client}.csv")
        assert [(line["id"], line["cluster"]) for line in lines] == [
            (line["id"], line["cluster"]) for line in labels
        ]
        assert all(0.3 < float(line["probability"]) <= 1 for line in lines)


def test_predict_finds_columns_by_their_names(plants, run, here):
    frame = pd.read_csv(plants / "a.csv")
    frame.assign(note="text")[["note", "temperature", "rms"]].to_csv("new.csv", index=False)
    frame[["rms", "temperature"]].to_parquet("new.parquet")
    np.save("new.npy", frame[["rms", "temperature"]])
    expected = [line["cluster"] for line in table(run / "labels" / "a.csv")]
    for name in ("new.csv", "new.parquet", "new.npy"):
        result = call("predict", run, name, "--client", "a", "--out", "labels.csv", "--force")
        assert "40 rows written to labels.csv" in result.stdout
        assert [line["cluster"] for line in table(Path("labels.csv"))] == expected


def test_predict_as_json(plants, run):
    facts = json.loads(call("predict", run, plants / "c.csv", "--json").stdout)
    assert facts["row"] == list(range(60))
    assert len(set(facts["cluster"])) == 3
    assert len(facts["probability"]) == 60


def test_predict_into_a_pipe_that_closes(plants, run):
    command = f"fedgem predict {run} {plants / 'c.csv'} | head -1"
    assert finish(start("bash", "-c", command, cwd=plants)) == (0, "row,cluster,probability\n", "")


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("rms\n1\n", [], "new.csv: found no column 'temperature' among 'rms'."),
        ("rms,temperature\n1,nan\n", [], "column 'temperature', row 0: found NaN"),
        ("rms,temperature\n1,red\n", [], "column 'temperature': found text ('red' in row 0), "),
        ("rms,temperature\n", [], "found no rows"),
        ("rms,temperature\n1,2\n", ["--client", "z"], "no client 'z', expected one of a, b, c, d."),
        ("rms,temperature\n1,2\n", ["--id-column", "id"], "new.csv: found no column 'id'"),
        ("rms,temperature\n1,2\n", ["--out", "new.csv"], "new.csv: found a file of that name"),
        ("rms,temperature\n1,2\n", ["--out", ".", "--force"], "found a folder, which --force"),
    ],
)
def test_predict_refuses_in_one_sentence(text, arguments, message, run, here):
    Path("new.csv").write_text(text)
    result = call("predict", run, "new.csv", *arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert re.search(f"^Error: .*{re.escape(message)}.*\n$", result.stderr)
    assert names() == ["new.csv"]


def test_predict_refuses_an_array_of_another_width(run, here):
    np.save("new.npy", np.ones((3, 5)))
    result = call("predict", run, "new.npy")
    assert result.stderr == "Error: new.npy: found 5 columns, expected the 2 of the model.\n"


# --- show


def test_show_says_what_tells_each_cluster_apart(run):
    shown = call("show", run).stdout
    facts = json.loads(call("show", run, "--json").stdout)
    assert "Clusters: 4 (90%: 4), of 9 components. Clients: 4. Rows: 180." in shown
    model = FedGEM.load(run / "model.npz")
    rows = [cluster["rows"] for cluster in facts["clusters"]]
    away = model.means_ - np.average(model.means_, axis=0, weights=rows)
    sd = away / np.sqrt(np.einsum("kdd,k->d", model.covariances_, rows) / sum(rows))
    for k, cluster in enumerate(facts["clusters"]):
        first = cluster["apart"][0]
        j = np.abs(sd[k]).argmax()
        assert first["feature"] == ["rms", "temperature"][j]
        assert first["sd"] == pytest.approx(sd[k, j])
        assert f"{first['feature']} {first['sd']:+.1f} sd ({first['mean']:.4g})" in shown


def test_show_refuses_damaged_runs(run, here):
    assert "nowhere: found no such folder" in call("show", "nowhere").stderr
    broken = here / "broken"
    broken.mkdir()
    assert "broken/model.npz does not exist" in call("show", "broken").stderr
    model = (run / "model.npz").read_bytes()
    (broken / "model.npz").write_bytes(model[:500])
    for command in (["show", "broken"], ["predict", "broken", "new.csv"]):
        result = call(*command)
        assert result.exit_code == 1
        assert re.fullmatch(r"Error: broken/model.npz is damaged .*\n", result.stderr)
    (broken / "model.npz").write_bytes(model)
    assert "broken/run.json: No such file" in call("show", "broken").stderr
    for text in ("{", "[]", "{}", '{"members": {"a": [1], "b": [1], "c": [1]}}'):
        (broken / "run.json").write_text(text)
        result = call("show", "broken")
        assert result.exit_code == 1
        assert result.stderr == (
            "Error: broken/run.json is damaged or does not belong to its model.npz.\n"
        )


def test_many_clients_share_a_line_where_they_have_the_same(capsys):
    rendering.show_members({f"plant-{g}": [5, None if g % 2 else 3] for g in range(40)})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[-2:]] == [
        ["plant-0", "and", "19", "more", "●", "●"],
        ["plant-1", "and", "19", "more", "●", "·"],
    ]


def test_what_is_left_out_is_said(capsys):
    members = {f"plant-{g}": [1 if k == g else None for k in range(35)] for g in range(35)}
    rendering.show_members(members)
    out = capsys.readouterr().out
    assert re.search(r"plant-29 +29 *\n", out)  # more clusters than columns: their numbers
    assert "And 5 more lines; members.csv has them all." in out


def test_marks_are_plain_where_the_output_takes_no_others(monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    monkeypatch.setattr(rendering, "out", Console(file=screen))
    rendering.show_members({"a": [5, None]})
    assert screen.buffer.getvalue().split()[-5:] == [b"a", b"|", b"x", b"|", b"."]


def test_study_without_a_name_lists_the_studies():
    result = call("study")
    assert result.exit_code == 0
    assert "table1" in result.stdout
    assert "sensitivity" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["table9"], "Found no study 'table9', expected one of table1, table2, silhouette,"),
        (["table1", "--data", "iris"], "--data: found 'iris', expected some of: mnist;"),
        (["table1", "--methods", "mine.py"], "mine.py: found no Python file"),
        (["table1", "--data", "emnist", "--data-dir", "."], "emnist: found no emnist47_vae16.npz"),
    ],
)
def test_study_says_what_is_wrong(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path.parent / "cache"))
    result = call("study", *arguments, "--seeds", 1)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {sentence}")
    assert result.stderr.count("\n") == 1
    assert names() == []


def test_study_measures_shows_and_says_where_it_is(tmp_path, monkeypatch):
    """One seed of the paper's way on small blobs, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["study", "radius", "--seeds", 1, "--jobs", 1, "--data", "nominal"]
    result = call(*arguments, "--methods", "FedGEM, paper")
    assert result.exit_code == 0
    assert "nominal, upsilon = 100" in result.stdout
    assert result.stdout.endswith("Written to fedgem-study/radius.\n")
    assert names("fedgem-study") == ["radius", "rows"]
    before = result.stdout
    assert call(*arguments, "--methods", "FedGEM, paper").stdout == before

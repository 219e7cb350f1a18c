import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

from fedgem import FedGEM, InputError
from fedgem.cli import app
from fedgem.engines.flower.serving import known_clients
from fedgem.engines.remote import RemoteEngine
from fedgem.federation import fit_clients, give_models, keeper, own_model
from fedgem.files import Source
from fedgem.inputs import open_rows
from fedgem.runs import Options, read_run
from same import assert_same_model
from transports import Direct, answers_of


def federation():
    rng = np.random.default_rng(3)
    centres = 8 * rng.normal(size=(5, 3))
    return {
        f"plant-{g}": centres[rng.choice(rng.permutation(5)[:3], 60)] + rng.normal(size=(60, 3))
        for g in range(3)
    }


def answers(X, tmp_path):
    found = answers_of(X)
    for name, answer in found.items():
        answer.keep = keeper(answer.source, tmp_path / name)
    return found


@pytest.mark.parametrize("options", [Options(3), Options(2, upsilon=2.0, scale=False)])
def test_a_run_leaves_a_folder_and_each_client_its_own_model(tmp_path, options):
    X = federation()
    engine = RemoteEngine(Direct(answers(X, tmp_path)), expect=3)
    run = fit_clients(engine, tmp_path / "run", options, command="test")
    local = FedGEM(
        options.clusters_per_client, upsilon=options.upsilon, scale=options.scale, random_state=0
    ).fit(X)
    assert_same_model(run.model, local)
    assert read_run(tmp_path / "run").counts.sum(axis=1).tolist() == [60, 60, 60]
    assert not (tmp_path / "run.checkpoint").exists()
    for g, name in enumerate(X):
        model = FedGEM.load(tmp_path / name / "model.npz")
        assert (model.clients_, len(model.weights_)) == ((name,), 1)
        labels = np.loadtxt(tmp_path / name / "labels.csv", delimiter=",", skiprows=1)[:, 1]
        assert_array_equal(labels, local.labels_[g])
        assert_array_equal(model.predict(X[name], client=name), labels)
        assert_array_equal(model.novelty(X[name]), local.novelty(X[name]))


@pytest.mark.parametrize("params", [{}, {"upsilon": 2.0, "n_local_components": 3}])
def test_a_clients_model_tells_nothing_of_the_others(tmp_path, params):
    model = FedGEM(random_state=0, **params).fit(federation())
    own = own_model(model, "plant-1")
    path = tmp_path / "model.npz"
    own.save(path)
    with np.load(path) as archive:
        assert b"plant-0" not in bytes(archive["fedgem.json"])
    assert_array_equal(own.components_.means, model.components_.means[own_components(model)])
    assert_array_equal(own.weights_, model.weights_[[1]])


def own_components(model):
    return model.components_.owners == 1


def test_clients_that_are_gone_at_the_end_do_not_hold_it_up(tmp_path):
    X = federation()
    engine = RemoteEngine(Direct(answers(X, tmp_path)), expect=3, round_timeout=9.0)
    model = FedGEM(3, engine=engine, random_state=0).fit()
    engine.transport.places.clear()
    counts = give_models(engine, model)
    assert [sum(own) for own in counts.values()] == pytest.approx([60, 60, 60], abs=2)
    assert {refusal.reason for refusal in engine.refusals} == {"no reply in 9 seconds"}


def test_a_model_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    X = np.ones((5, 2))
    keep = keeper(Source("a", *open_rows(X, "a"), None), tmp_path / "a")
    model = FedGEM(1, random_state=0).fit({"a": np.random.default_rng(0).normal(size=(50, 2))})
    model.save(tmp_path / "model.npz")
    monkeypatch.setattr("fedgem.wire.MOST_BYTES", 100)
    with pytest.raises(ValueError, match="too large"):
        keep((tmp_path / "model.npz").read_bytes())


def invoke(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_a_dry_run_prints_every_number_and_sends_none(tmp_path):
    X = next(iter(federation().values()))
    np.save(tmp_path / "plant-0.npy", X)
    result = invoke("client", tmp_path / "plant-0.npy", "--dry-run")
    assert result.exit_code == 0
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    assert messages[0]["reply"] == {
        "message": "AboutReply",
        "n_rows": 60,
        "n_features": 3,
        "dtype": "float64",
    }
    assert messages[-1]["reply"]["message"] == "ModelReply"
    kinds = {message["reply"]["message"] for message in messages}
    assert {"MomentsReply", "FitReply", "ShareReply", "NoveltyReply"} <= kinds


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["client", "a.npy"], "found no --server"),
        (["client", "a.npy", "--server", "x:1"], "neither of --certificates and --insecure"),
        (["client", "a.npy", "--server", "192.0.2.1:1", "--insecure"], "--insecure-network"),
        (["server", "--expect", 2, "--out", "r"], "neither of --certificates and --insecure"),
        (
            ["server", "--expect", 2, "--out", "r", "--insecure", "--host", "0.0.0.0"],
            "--insecure-network",
        ),
        (["keys", "new", "k"], "neither --host nor --clients"),
    ],
)
def test_what_is_not_safe_is_refused_in_a_sentence(tmp_path, monkeypatch, args, reason):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((3, 2)))
    result = invoke(*args)
    assert result.exit_code == 1
    assert reason in result.stderr


def test_rows_are_checked_before_anything_is_sent(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.0], [np.nan]]))
    result = invoke(
        "client",
        tmp_path / "a.npy",
        "--server",
        "127.0.0.1:9",
        "--insecure",
        "--out",
        tmp_path / "o",
    )
    assert "Client 'a', column 0, row 1: found NaN" in result.stderr


def test_more_clients_cannot_be_expected_than_have_keys(tmp_path):
    assert (
        invoke("keys", "new", tmp_path / "k", "--host", "localhost", "--clients", "a").exit_code
        == 0
    )
    result = invoke(
        "server", "--expect", 2, "--out", tmp_path / "r", "--certificates", tmp_path / "k"
    )
    assert "found 2, expected at most the 1 with keys" in result.stderr
    with pytest.raises(InputError, match="no public keys"):
        known_clients(tmp_path)

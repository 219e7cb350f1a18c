"""A run that is killed and started again ends as if it had never been."""

import random
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from fedgem import FedGEM, InputError, StoredFileError, checkpoints, storage
from models import collaborative

RUN = """
import os
import sys
import numpy as np
from fedgem import FedGEM

rng = np.random.default_rng(0)
centres = 3 * rng.normal(size=(8, 6))
clients = {f"plant-{g}": centres[rng.integers(8, size=4000)] + rng.normal(size=(4000, 6))
           for g in range(6)}
model = FedGEM(6, random_state=3, **eval(sys.argv[3]))
model.fit([clients["plant-0"][:50]])  # loads what is compiled, which takes longer than a fit
print("ready", flush=True)
model.fit(clients, checkpoint=sys.argv[1])
np.savez(sys.argv[2] + ".part.npz", means=model.means_, weights=model.weights_,
         labels=model.labels_, rounds=model.n_iter_)
os.replace(sys.argv[2] + ".part.npz", sys.argv[2])
"""


JOIN = {"covariance_type": "identity", "learn_weights": False, "upsilon": 1.0}
JOIN |= {"max_iter": 60, "tol": 0.0}
SHARE = {"covariance_type": "diag", "max_iter": 5}


@pytest.mark.parametrize(("params", "times"), [(JOIN, 20), (SHARE, 10)], ids=["join", "share"])
def test_killed_many_times_at_random_moments(tmp_path, params, times):
    def start(checkpoint, out):
        command = [sys.executable, "-c", RUN, str(checkpoint), str(out), repr(params)]
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    with start(tmp_path / "calm.checkpoint", tmp_path / "calm.npz") as process:
        process.stdout.readline()
        begin = time.perf_counter()
        assert process.wait() == 0
        seconds = time.perf_counter() - begin
    calm = np.load(tmp_path / "calm.npz")
    chance, kills, run = random.Random(0), 0, 0
    while kills < times:
        run += 1
        out, checkpoint = tmp_path / f"{run}.npz", tmp_path / f"{run}.checkpoint"
        while not out.exists():
            with start(checkpoint, out) as process:
                process.stdout.readline()  # about to fit
                try:
                    process.wait(chance.uniform(0, 0.8 * seconds) if kills < times else None)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
        found = np.load(out)
        for name in calm.files:
            assert_array_equal(found[name], calm[name])


@pytest.fixture
def clients():
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(50, 2)) for name in "abc"}


def interrupted(model, clients, path, after=3):
    def stop(row):
        if row.round == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(clients, checkpoint=path, callbacks=[stop])


@pytest.mark.parametrize("random_state", [0, None])
def test_resuming_runs_only_what_is_left(tmp_path, clients, random_state):
    path = tmp_path / "run.checkpoint"
    interrupted(collaborative(upsilon=1.0, tol=0, random_state=random_state), clients, path)
    rounds = []
    model = collaborative(upsilon=1.0, tol=0, random_state=random_state)
    model.fit(clients, checkpoint=path, callbacks=[lambda row: rounds.append(row.round)])
    assert rounds == list(range(4, 11))
    assert [row.round for row in model.history_] == list(range(11))
    again = collaborative(upsilon=1.0, tol=0, random_state=random_state).fit(
        clients, checkpoint=path
    )
    assert_array_equal(again.means_, model.means_)


@pytest.mark.parametrize(
    "params", [{}, {"n_local_components": 2, "scale": True}, {"covariance_type": "tied"}], ids=str
)
def test_a_shared_mixture_is_resumed_in_every_phase(tmp_path, clients, params):
    path, states = tmp_path / "run.checkpoint", []
    clients = {name: np.concatenate([X, X + 9.0]) for name, X in clients.items()}
    calm = FedGEM(random_state=0, **params).fit(
        clients, checkpoint=path, callbacks=[lambda row: states.append(path.read_bytes())]
    )
    phases = {}
    for state in states:
        path.write_bytes(state)
        phases[storage.load(path, checkpoints.FORMAT)["training"].phase] = state
    assert set(phases) >= {"spread", "number", "done"}
    for state in [states[0], *phases.values()]:
        path.write_bytes(state)
        resumed = FedGEM(random_state=0, **params).fit(clients, checkpoint=path)
        assert [row.objective for row in resumed.history_] == [r.objective for r in calm.history_]
        for name in ("means_", "covariances_", "weights_", "component_labels_"):
            assert_array_equal(getattr(resumed, name), getattr(calm, name))
        assert resumed.n_clusters_probabilities_ == calm.n_clusters_probabilities_


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_covariances_and_weights_are_resumed_as_well(tmp_path, clients, covariance_type):
    path = tmp_path / "run.checkpoint"
    params = {"covariance_type": covariance_type, "learn_weights": True, "upsilon": 1.0}
    params |= {"tol": 0, "random_state": 0}
    interrupted(collaborative(**params), clients, path)
    resumed = collaborative(**params).fit(clients, checkpoint=path)
    calm = collaborative(**params).fit(clients)
    assert_array_equal(resumed.means_, calm.means_)
    assert_array_equal(resumed.covariances_, calm.covariances_)
    assert_array_equal(resumed.weights_, calm.weights_)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"covariance_type": "full"}, "covariance_type"),
        ({"learn_weights": True}, "learn_weights"),
        ({"n_local_components": 3}, "components"),
        ({"random_state": 1}, "random_state"),
        ({"scale": True}, "scale"),
        ({"max_iter": 7}, "max_iter"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, clients, other, what):
    path = tmp_path / "run.checkpoint"
    interrupted(collaborative(upsilon=1.0, tol=0, random_state=0), clients, path)
    with pytest.raises(InputError, match=f"a run with other {what}"):
        collaborative(**{"upsilon": 1.0, "tol": 0, "random_state": 0} | other).fit(
            clients, checkpoint=path
        )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda clients: clients | {"d": clients["a"]}, "clients"),
        (lambda clients: clients | {"a": clients["a"] + 1}, "rows"),
        (
            lambda clients: {
                name: pd.DataFrame(X, columns=["x", "y"]) for name, X in clients.items()
            },
            "columns",
        ),
    ],
)
def test_a_checkpoint_of_other_data_is_refused(tmp_path, clients, change, what):
    path = tmp_path / "run.checkpoint"
    interrupted(collaborative(upsilon=1.0, tol=0, random_state=0), clients, path)
    with pytest.raises(InputError, match=f"a run with other {what}"):
        collaborative(upsilon=1.0, tol=0, random_state=0).fit(change(clients), checkpoint=path)


def test_a_checkpoint_of_the_other_way_is_refused(tmp_path, clients):
    path = tmp_path / "run.checkpoint"
    interrupted(FedGEM(2, upsilon=1.0, random_state=0), clients, path)
    with pytest.raises(InputError, match="a run with other upsilon"):
        FedGEM(2, random_state=0).fit(clients, checkpoint=path)


def test_a_damaged_checkpoint_is_refused(tmp_path, clients):
    path = tmp_path / "run.checkpoint"
    interrupted(collaborative(upsilon=1.0, tol=0, random_state=0), clients, path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(StoredFileError, match="damaged"):
        collaborative(upsilon=1.0, tol=0, random_state=0).fit(clients, checkpoint=path)

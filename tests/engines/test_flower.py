"""The commands of a federation as they are typed, with real processes."""

import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedgem import FedGEM
from fedgem.engines.flower.processes import free_port
from fedgem.engines.remote import RemoteEngine
from fedgem.keys import new_client_keys, new_server_keys
from same import assert_same_model
from transports import Direct, answers_of

NAMES = [f"plant-{g}" for g in range(5)]
FEDGEM = [sys.executable, "-c", "from fedgem.cli import main; main()"]


def rows():
    rng = np.random.default_rng(3)
    centres = 8 * rng.normal(size=(5, 3))
    return {
        name: centres[rng.choice(rng.permutation(5)[:3], 60)] + rng.normal(size=(60, 3))
        for name in NAMES
    }


def compile_all(X):
    """Compile what these fits need once, instead of in every process."""
    FedGEM(2, upsilon=2.0, random_state=4).fit(X)
    engine = RemoteEngine(Direct(answers_of(X)), expect=len(X))
    FedGEM(2, upsilon=2.0, random_state=4, engine=engine).fit()


@contextmanager
def running(*args, cwd):
    """A command of fedgem; ended, if it has not by itself."""
    process = subprocess.Popen(
        [*FEDGEM, *map(str, args)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # One thread each: five clients share this machine.
        env=os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def ended(process, seconds):
    """What a command printed, once it has ended by itself."""
    return process.communicate(timeout=seconds)[0]


@pytest.mark.skipif(os.name != "posix", reason="the commands need a POSIX system")
def test_a_federation_of_processes_finds_what_one_process_finds(tmp_path):
    X, port = rows(), free_port()
    for name, own in X.items():
        np.save(tmp_path / f"{name}.npy", own)
    files = [f"{name}.npy" for name in NAMES]
    compile_all({name: tmp_path / file for name, file in zip(NAMES, files, strict=True)})
    new_server_keys(tmp_path / "keys", "127.0.0.1")
    new_client_keys(tmp_path / "keys", NAMES)
    new_server_keys(tmp_path / "other", "127.0.0.1")
    new_client_keys(tmp_path / "other", ["plant-0"])
    (tmp_path / "stranger").mkdir()
    for path in ("keys/authority.pem", "other/clients/plant-0.key"):
        (tmp_path / "stranger" / Path(path).name).write_bytes((tmp_path / path).read_bytes())

    def client(name, keys):
        address = f"127.0.0.1:{port}"
        args = ("client", f"{name}.npy", "--server", address, "--certificates", keys)
        return running(*args, cwd=tmp_path)

    options = ("--clusters-per-client", 2, "--upsilon", 2, "--no-scale", "--seed", 4)
    at = ("--host", "127.0.0.1", "--port", port)
    with ExitStack() as stack:
        server = stack.enter_context(
            running(
                *("server", "--certificates", "keys", "--expect", 5, "--out", "run"),
                *(*at, *options),
                cwd=tmp_path,
            )
        )
        # All at once, for what takes longest is starting so many.
        clients = {name: stack.enter_context(client(name, "keys")) for name in NAMES}
        stranger = stack.enter_context(client("plant-0", "stranger"))
        fooled = stack.enter_context(client("plant-0", "other"))
        assert server.stdout.readline() == f"Listening at 127.0.0.1:{port}.\n"
        assert "a certificate that other/authority.pem does not vouch for" in ended(fooled, 120)
        assert "does not know the key of plant-0" in ended(stranger, 120)
        assert (stranger.returncode, fooled.returncode) == (1, 1)
        said = ended(server, 300)
        assert server.returncode == 0, said
        for name, process in clients.items():
            assert f"The model and the labels are in {name}-run." in ended(process, 120)
            assert process.returncode == 0
    assert "plant-3 is here: 60 rows, 3 columns." in said
    assert "Done: " in said

    with running("fit", *files, "--out", "local", *options, cwd=tmp_path) as fit:
        said = ended(fit, 120)
        assert fit.returncode == 0, said
    assert_same_model(*(FedGEM.load(tmp_path / run / "model.npz") for run in ("run", "local")))
    for name, own in X.items():
        labels = (tmp_path / "local" / "labels" / f"{name}.csv").read_text()
        assert (tmp_path / f"{name}-run" / "labels.csv").read_text() == labels
        model = FedGEM.load(tmp_path / f"{name}-run" / "model.npz")
        assert model.clients_ == (name,)
        found = [int(line.split(",")[1]) for line in labels.splitlines()[1:]]
        assert model.predict(own, client=name).tolist() == found


SIMULATION = """
from fedgem import FedGEM
from fedgem.engines.flower import simulate
from test_flower import few_rows

if __name__ == "__main__":
    simulate(FedGEM(2, upsilon=2.0, random_state=4), few_rows()).save("model.npz")
    FedGEM(2, upsilon=2.0, random_state=4).fit(few_rows()).save("local.npz")
"""


def few_rows():
    return dict(list(rows().items())[:2])


def test_a_simulation_finds_what_one_process_finds(tmp_path):
    pytest.importorskip("ray", reason="ray is not to be had on this platform")
    compile_all(few_rows())
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])
    (tmp_path / "trial.py").write_text(SIMULATION)
    # In a process of its own, which takes its threads and its warnings with it.
    subprocess.run(
        [sys.executable, "trial.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "FLWR_TELEMETRY_ENABLED": "0"},
        timeout=120,
        check=True,
        capture_output=True,
    )
    assert_same_model(*(FedGEM.load(tmp_path / name) for name in ("model.npz", "local.npz")))

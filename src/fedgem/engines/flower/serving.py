"""The command of a server: a SuperLink of Flower behind a gate, and the app that it runs."""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from fedgem import keys, runs
from fedgem.engines.flower.gate import open_gate
from fedgem.engines.flower.processes import child, free_port, program
from fedgem.errors import InputError
from fedgem.runs import Options
from fedgem.writing import refuse_existing

APP = Path(__file__).parent / "app"
START = 60.0  # seconds that a SuperLink is given to start
TRIES = 5  # times that a run is started again without getting any further


def serve(
    out: Path,
    options: Options,
    *,
    certificates: Path | None,
    host: str,
    port: int,
    expect: int,
    min_clients: int | None,
    round_timeout: float | None,
    command: str,
    say: Callable[[str], None],
) -> None:
    """Run a federation and write the run's folder.

    Parameters
    ----------
    out : path
        The folder to write.
    options : Options
        How to fit.
    certificates : path, optional
        The folder with the server's certificate and the clients' public keys; none for plain
        text and clients that anybody may be.
    host, port : str and int
        Where to listen.
    expect, min_clients, round_timeout
        As in `fedgem.engines.remote.RemoteEngine`.
    command : str
        What the user typed, for the record.
    say : callable
        Told, in a sentence each, what happens.
    """
    refuse_existing(out, runs.CONTENTS, force=False)
    known = {} if certificates is None else known_clients(certificates)
    if known and len(known) < expect:
        raise InputError(f"--expect: found {expect}, expected at most the {len(known)} with keys.")
    config = {
        "out": str(out.resolve()),
        "clients": ",".join(sorted(known)),
        "expect": expect,
        "min-clients": min_clients or 0,
        "round-timeout": round_timeout or 0.0,
        "clusters-per-client": json.dumps(options.clusters_per_client),
        "upsilon": json.dumps(options.upsilon),
        "scale": options.scale,
        "seed": options.seed,
        "command": command,
    }
    shown = None
    if certificates is not None:
        shown = _existing(certificates / keys.SERVER), _existing(certificates / keys.SERVER_KEY)
    with (
        tempfile.TemporaryDirectory(prefix="fedgem-") as folder,
        _superlink(Path(folder), known) as (address, authority),
        open_gate(address, authority, host, port, shown, known.values() if known else None),
    ):
        say(f"Listening at {host}:{port}.")
        _run(Path(folder), out, config, say)


def known_clients(certificates: Path) -> dict[str, bytes]:
    """Return the public key of each client, by name, as Flower wants them."""
    found = {}
    for path in sorted((certificates / keys.CLIENTS).glob("*.pub")):
        try:
            key = load_ssh_public_key(path.read_bytes())
        except ValueError:
            key = None
        if not isinstance(key, EllipticCurvePublicKey):
            raise InputError(f"{path}: found no public key that fedgem keys new made.")
        found[path.name.removesuffix(".pub")] = key.public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
    if not found:
        raise InputError(f"{certificates / keys.CLIENTS}: found no public keys (*.pub) of clients.")
    return found


@contextmanager
def _superlink(folder: Path, known: Mapping[str, bytes]) -> Iterator[tuple[str, Path | None]]:
    """Run a SuperLink that only this machine can reach; give its address and its authority."""
    home, port = folder / "home", free_port()
    home.mkdir()
    address, authority = f"127.0.0.1:{port}", folder / keys.AUTHORITY if known else None
    arguments = [program("flower-superlink"), "--port", str(port)]
    arguments += ["--disable-runtime-dependency-installation"]
    connection: dict[str, object] = {"address": address}
    if authority is None:
        arguments += ["--insecure"]
        connection["insecure"] = True
    else:
        keys.new_server_keys(folder, "localhost")
        arguments += ["--ssl-certfile", str(folder / keys.SERVER), "--enable-supernode-auth"]
        arguments += ["--ssl-keyfile", str(folder / keys.SERVER_KEY)]
        arguments += ["--ssl-ca-certfile", str(authority)]
        connection["root-certificates"] = str(authority)
    lines = [f"{name} = {json.dumps(value)}" for name, value in connection.items()]
    (home / "config.toml").write_text("\n".join(["[superlink.fedgem]", *lines, ""]))
    log = folder / "superlink.log"
    with child(arguments, home, log) as process:
        end = time.monotonic() + START
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > end:
                raise InputError(f"The SuperLink did not start: {_last(log)}")
            time.sleep(0.1)
        with ControlHttpClient.from_server_address(
            address,
            insecure=authority is None,
            root_certificates=None if authority is None else authority.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-cli")],
        ) as control:
            for name, key in known.items():
                control.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
        yield address, authority


def _run(folder: Path, out: Path, config: Mapping[str, object], say: Callable[[str], None]) -> None:
    """Submit the app and show what it says, again where it was killed, until it is done."""
    overrides = folder / "run.toml"
    overrides.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in config.items()))
    arguments = [program("flwr"), "run", str(APP), "fedgem", "--stream"]
    arguments += ["--run-config", str(overrides)]
    checkpoint, tries, before = runs.checkpoint_of(out), 0, None
    while tries < TRIES:
        with child(arguments, folder / "home") as process:
            assert process.stdout is not None
            for line in process.stdout:
                if (text := line.strip()) and not _is_flowers(text):
                    say(text)
        if (out / "run.json").exists():
            return
        now = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
        tries, before = (0 if now != before else tries + 1), now
        say("The run has stopped; starting it again.")
        time.sleep(1)
    raise InputError("The run stops again and again; see what is said above.")


def _is_flowers(line: str) -> bool:
    """Tell what Flower says about itself from what is said about the run."""
    return line.startswith(
        ("\x1b[", "INFO", "Successfully ", "Using SuperLink", "- Recom", "Flower ")
    )


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _last(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "it said nothing."


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: found no such file; fedgem keys new makes it.")
    return path

"""The command of a client: a SuperNode of Flower, and the one thing that it may run.

A SuperNode would run whatever code a server sends along. Here it runs none: it only carries
messages, and this process, which was started by the client's own people, takes them from it and
answers from the file. That also spares starting a process for every message.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from flwr.app import Message
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedgem.engines.answering import Answering
from fedgem.engines.flower import packed, unpacked
from fedgem.engines.flower.gate import UNKNOWN_KEY
from fedgem.engines.flower.processes import child, free_port, program
from fedgem.errors import InputError
from fedgem.keys import AUTHORITY, CLIENTS

PAUSE = 0.1  # seconds between two looks for a request
FAREWELL = 8.0  # seconds that the last reply is given to leave
AGAIN = 3.0  # seconds before a SuperNode is started again
METHOD = "/flwr.proto.Runtime/AcquireTask"


def join(
    answer: Answering,
    server: str,
    certificates: Path | None,
    is_done: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Take part in the federation of a server until it is done.

    Parameters
    ----------
    answer : Answering
        What answers.
    server : str
        Its host and port.
    certificates : path, optional
        The folder with the authority's certificate and the client's key; none for plain text.
    is_done : callable
        Tells whether the client has got its model.
    say : callable
        Told, in a sentence each, what happens.
    """
    name = answer.source.name
    authority = None if certificates is None else _existing(certificates / AUTHORITY)
    key = None if certificates is None else _key(certificates, name)
    say(f"{name}: {answer.source.rows.shape[0]} rows. Looking for the server at {server}.")
    while not is_done():
        _reach(server, authority)
        with tempfile.TemporaryDirectory(prefix="fedgem-") as folder:
            with _supernode(server, authority, key, Path(folder)) as (node, client):
                _answer_all(answer, node, client, is_done)
            if not is_done():
                say(_why_it_ended(Path(folder) / "log", name))
        if not is_done():
            time.sleep(AGAIN)
    say("Done.")


def _answer_all(
    answer: Answering,
    node: subprocess.Popen[str],
    client: Callable[..., RuntimeHttpClient],
    is_done: Callable[[], bool],
) -> None:
    """Answer what the SuperNode brings, until the run is done or the SuperNode has ended."""
    last = time.monotonic()
    with client() as tasks:
        while node.poll() is None and not (is_done() and time.monotonic() - last > FAREWELL):
            try:
                found = tasks.AcquireTask(
                    AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
                )
                if found.token:
                    with client(found.token) as task:
                        _answer_one(answer, task)
                    last = time.monotonic()
            except httpx.HTTPError:  # it is starting, or ending
                pass
            time.sleep(PAUSE)


def _answer_one(answer: Answering, task: RuntimeHttpClient) -> None:
    """Answer one request; what arrives with it beside the message is not looked at."""

    def beat() -> bool:
        try:
            return bool(task.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success)
        except httpx.HTTPError:
            return False

    heart = HeartbeatSender(beat)  # long work is no sign of death
    heart.start()
    try:
        message, context, _, _ = pull_task_input(task)
        reply = Message(packed(answer(unpacked(message.content))), reply_to=message)
        push_message(task, reply, context)
        push_task_output(task, context, "completed", "")
    finally:
        heart.stop()


@contextmanager
def _supernode(
    server: str, authority: Path | None, key: Path | None, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], Callable[..., RuntimeHttpClient]]]:
    """Run a SuperNode; give it, and what makes a connection to it."""
    secret, port = secrets.token_bytes(32), free_port()
    # Nobody else on this machine may take the requests.
    path = folder / "secret"
    path.touch(0o600)
    path.write_bytes(secret)
    command = [program("flower-supernode"), "--superlink", server]
    command += ["--isolation", "process", "--superexec-auth-secret-file", str(path)]
    command += ["--port", str(port)]
    command += ["--insecure"] if authority is None else ["--root-certificates", str(authority)]
    command += [] if key is None else ["--auth-supernode-private-key", str(key)]

    def client(token: str | None = None) -> RuntimeHttpClient:
        interceptors: list[ProtobufClientInterceptor] = [
            RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
            RuntimeTokenHttpInterceptor(token)
            if token
            else SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={METHOD}),
        ]
        return RuntimeHttpClient.from_server_address(
            server_address=f"127.0.0.1:{port}",
            insecure=True,
            root_certificates=None,
            interceptors=interceptors,
        )

    with child(command, folder / "home", folder / "log") as process:
        yield process, client


def _reach(server: str, authority: Path | None) -> None:
    """Wait for the server, and refuse one that is not who it should be."""
    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"--server: found {server!r}, expected HOST:PORT.")
    host = host.strip("[]")
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=10) as plain:
                if authority is not None:
                    context = ssl.create_default_context(cafile=authority)
                    context.wrap_socket(plain, server_hostname=host).close()
            return
        except ssl.SSLCertVerificationError as error:
            raise InputError(
                f"{server}: found a certificate that {authority} does not vouch for "
                f"({error.verify_message}), expected the server's."
            ) from error
        except OSError:  # it is not there yet, or not any more
            time.sleep(AGAIN)


def _why_it_ended(log: Path, name: str) -> str:
    """Say why a SuperNode ended; raise where trying again would not help."""
    text = log.read_text("utf-8", errors="replace") if log.exists() else ""
    if f"error '{UNKNOWN_KEY} " in text:
        raise InputError(
            f"The server does not know the key of {name}; whoever runs it needs its .pub file."
        )
    if "[code: 2004]" in text:  # for a minute after a client was killed
        return "The server takes this client for connected still; trying again."
    return "The connection was lost; trying again."


def _key(certificates: Path, name: str) -> Path:
    for folder in (certificates, certificates / CLIENTS):
        if (folder / f"{name}.key").exists():
            return folder / f"{name}.key"
    return _existing(certificates / CLIENTS / f"{name}.key")


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: found no such file; fedgem keys new makes it.")
    return path

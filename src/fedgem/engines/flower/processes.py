"""Flower's own programs as children of a command: started with care, never left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedgem.errors import InputError

GRACE = 5.0  # seconds that a child is given to end
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def program(name: str) -> str:
    """Return the path of one of Flower's programs."""
    path = Path(sysconfig.get_path("scripts")) / name
    if not path.exists():
        raise InputError(f"Found no program {name}, expected fedgem[flower] to be installed.")
    return str(path)


@contextmanager
def child(
    command: Sequence[str], home: Path, log: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a program for as long as the context lasts, and whatever it started itself.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    home : path
        Flower's folder for this federation.
    log : path, optional
        Where what it prints goes; to a pipe by default.
    """
    environment = os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        # The programs find each other by name.
        "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
    }
    # A session of its own: Ctrl-C comes to this process alone, which then ends them in order.
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if log is None else log.open("a"),
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    try:
        yield process
    finally:
        _end(process)


def _end_with_parent() -> None:
    """Ask the kernel to end this child if its parent is killed, where it can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[str]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            break
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let whoever asks this process to end have what Ctrl-C has: an end in order."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)  # a shell's background ignores the first
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine, and so out of the network's reach.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return all(str(item[4][0]).startswith("127.") or item[4][0] == "::1" for item in found)


def refuse_plain_text(host: str, *, insecure: bool, insecure_network: bool) -> None:
    """Refuse plain text across a network unless it was asked for twice."""
    if insecure and not insecure_network and not is_loopback(host):
        raise InputError(
            f"{host}: found an address outside this machine, expected one inside with --insecure; "
            "use --certificates, or --insecure-network where others may read everything."
        )

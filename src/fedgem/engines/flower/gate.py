"""The one door to a server that is open to the network.

A SuperLink answers at one port to SuperNodes, to whoever submits or stops runs and registers
nodes, and to the processes that carry runs out; of these only SuperNodes show a key. It listens on
this machine alone, therefore, and this passes on what SuperNodes ask, and nothing else.
"""

from __future__ import annotations

import re
import threading
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any

import httpx
import uvicorn
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER

from fedgem import wire
from fedgem.errors import InputError

# What SuperNodes ask. No dots: they would lead elsewhere.
OPEN = re.compile("/v1/fleet/[a-z-]+")
CLOSED = ("/v1/fleet/register-node", "/v1/fleet/unregister-node")  # where keys decide
LARGEST = wire.MOST_BYTES + 2**20  # bytes of a request: a message and what Flower wraps it in
# What a request brings with it that matters to the SuperLink: what is signed, and how it is meant.
DROPPED = {b"host", b"connection", b"content-length", b"transfer-encoding"}

# What a SuperNode is told whose key is not known. It takes 401 and 403 for something else.
UNKNOWN_KEY = 407
KEY = FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode()

App = Callable[[Any, Any, Any], Awaitable[None]]


def gate(client: httpx.AsyncClient, known: Collection[bytes] | None) -> App:
    """Return the ASGI app that passes on what SuperNodes ask.

    Parameters
    ----------
    client : httpx.AsyncClient
        What reaches the SuperLink.
    known : collection of bytes, optional
        The public keys of the SuperNodes that may pass; without any, all may.
    """
    passes = None if known is None else {b64encode(key) for key in known}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return None
        path = scope["path"]
        if not OPEN.fullmatch(path) or (passes is not None and path in CLOSED):
            return await _send(send, 404, [], b"")
        # That a SuperNode has the key that it names is for the SuperLink to check.
        if passes is not None and dict(scope["headers"]).get(KEY) not in passes:
            return await _send(send, UNKNOWN_KEY, [], b"")
        body = bytearray()
        more = True
        while more:
            part = await receive()
            if part["type"] == "http.disconnect":
                return None
            body += part.get("body", b"")
            more = part.get("more_body", False)
            if len(body) > LARGEST:
                return await _send(send, 413, [], b"")
        headers = [(key, value) for key, value in scope["headers"] if key not in DROPPED]
        try:
            reply = await client.request(
                scope["method"], path, content=bytes(body), headers=headers
            )
        except httpx.HTTPError:
            return await _send(send, 503, [], b"")
        # Decoded by the client: what says how it was encoded is not true any more.
        kept = [
            (key.lower(), value)
            for key, value in reply.headers.raw
            if key.lower() not in DROPPED | {b"content-encoding"}
        ]
        return await _send(send, reply.status_code, kept, reply.content)

    return app


async def _send(send: Any, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def open_gate(
    superlink: str,
    authority: Path | None,
    host: str,
    port: int,
    certificate: tuple[Path, Path] | None,
    known: Collection[bytes] | None,
) -> Iterator[None]:
    """Open the gate to a SuperLink for as long as the context lasts.

    Parameters
    ----------
    superlink : str
        The address of the SuperLink, host and port.
    authority : path, optional
        The certificate that the SuperLink's is signed with; none for plain text.
    host, port : str and int
        Where to listen.
    certificate : pair of paths, optional
        The certificate to show and its key; none for plain text.
    known : collection of bytes, optional
        As in `gate`.
    """
    verify: bool | SSLContext = (
        False if authority is None else create_default_context(cafile=authority)
    )
    scheme = "http" if authority is None else "https"
    client = httpx.AsyncClient(
        base_url=f"{scheme}://{superlink}", verify=verify, timeout=60.0, trust_env=False
    )
    config = uvicorn.Config(
        gate(client, known),
        host,
        port,
        log_level="error",
        access_log=False,
        lifespan="off",
        ssl_certfile=None if certificate is None else certificate[0],
        ssl_keyfile=None if certificate is None else str(certificate[1]),
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while thread.is_alive() and not server.started:
        time.sleep(0.05)
    if not server.started:
        raise InputError(f"{host}:{port}: cannot be listened at, expected a free port.")
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(5)

import asyncio
from base64 import b64encode

import httpx
import pytest

from fedgem.engines.flower import gate as gates
from fedgem.engines.flower.gate import UNKNOWN_KEY, gate

KEY = b"-----BEGIN PUBLIC KEY-----"
SIGNED = {"flwr-public-key": b64encode(KEY).decode(), "flwr-signature": "abc"}


async def superlink(scope, receive, send):
    """Stands behind the gate and says what it was asked."""
    body = (await receive())["body"]
    signature = dict(scope["headers"]).get(b"flwr-signature", b"")
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    reply = b" ".join([scope["path"].encode(), signature, body])
    await send({"type": "http.response.body", "body": reply})


def ask(path, *, known=(KEY,), body=b"x", headers=SIGNED, behind=superlink):
    async def exchange():
        inner = httpx.AsyncClient(transport=httpx.ASGITransport(behind), base_url="http://inside")
        outer = httpx.ASGITransport(gate(inner, known))
        async with inner, httpx.AsyncClient(transport=outer, base_url="http://gate") as client:
            return await client.post(path, content=body, headers=headers)

    return asyncio.run(exchange())


def test_what_supernodes_ask_passes_with_what_they_signed():
    reply = ask("/v1/fleet/pull-messages", body=b"hello")
    assert (reply.status_code, reply.text) == (200, "/v1/fleet/pull-messages abc hello")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/docs",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/register-node",
    ],
)
def test_nothing_else_passes(path):
    assert ask(path).status_code == 404


def test_only_known_keys_pass():
    assert ask("/v1/fleet/activate-node", headers={}).status_code == UNKNOWN_KEY
    other = {"flwr-public-key": b64encode(b"other").decode()}
    assert ask("/v1/fleet/activate-node", headers=other).status_code == UNKNOWN_KEY


def test_without_keys_anybody_may_register():
    assert ask("/v1/fleet/register-node", known=None, headers={}).status_code == 200


def test_what_is_too_large_is_not_even_read(monkeypatch):
    monkeypatch.setattr(gates, "LARGEST", 10)
    assert ask("/v1/fleet/push-object", body=b"x" * 11).status_code == 413


def test_a_superlink_that_is_gone_may_come_back():
    async def gone(scope, receive, send):
        raise httpx.ConnectError("gone")

    assert ask("/v1/fleet/pull-messages", behind=gone).status_code == 503

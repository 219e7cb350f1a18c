"""What a client would send, without sending it: a federation of this one client in one process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from fedgem import wire
from fedgem.engines.answering import Answering
from fedgem.engines.remote import Clock, Delivery, Node, RemoteEngine
from fedgem.federation import give_models
from fedgem.messages import Answer
from fedgem.runs import Options, asked_for


def dry_run(answer: Answering, options: Options, write: Callable[[dict[str, Any]], None]) -> None:
    """Run a federation of one client and hand over each message that it would send.

    Parameters
    ----------
    answer : Answering
        What answers for the client.
    options : Options
        How to fit.
    write : callable
        Called with every message, ready for JSON.
    """
    engine = RemoteEngine(_Inside(answer, write))
    give_models(engine, asked_for(options, engine).fit())


class _Inside(Clock):
    """Carries each message to the one client and back, and shows what comes back."""

    def __init__(self, answer: Answering, write: Callable[[dict[str, Any]], None]) -> None:
        self.answer, self.write = answer, write
        self.replies: dict[str, bytes] = {}

    def nodes(self) -> list[Node]:
        return [Node(0)]

    def send(self, mail: Mapping[Node, bytes], seconds: float | None) -> dict[Node, str]:
        for data in mail.values():
            reply = self.answer(data)
            self.write({"bytes": len(reply)} | readable(wire.decode(reply, Answer)))
            self.replies["0"] = reply
        return dict.fromkeys(mail, "0")

    def receive(self, tickets: Collection[str]) -> list[Delivery]:
        return [Delivery(t, self.replies.pop(t)) for t in tickets if t in self.replies]


def readable(value: Any) -> Any:
    """Return a message as dictionaries and lists, every number of it, ready for JSON.

    Examples
    --------
    >>> from fedgem.messages import RelianceReply
    >>> readable(RelianceReply(0.5))
    {'message': 'RelianceReply', 'reliance': 0.5}
    """
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [readable(part) for part in value]
    if hasattr(value, "__dataclass_fields__"):
        parts = {name: getattr(value, name) for name in value.__dataclass_fields__}
        given = {name: readable(part) for name, part in parts.items() if part is not None}
        return {"message": type(value).__name__} | given
    return value

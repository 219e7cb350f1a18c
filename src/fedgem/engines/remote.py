"""An engine whose clients are other processes: late, gone, back again, or not what they say.

Everything that can go wrong on the way is dealt with here, whatever carries the bytes. A request
is a pure question (`fedgem.client.respond`), so asking twice does no harm; a reply counts once, and
only if it answers what was asked. What does not count is kept as a `Refusal` with its reason.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from fedgem import wire
from fedgem.checks import is_number, is_whole, require
from fedgem.client import Client
from fedgem.engines.engine import State
from fedgem.errors import InputError, WireError
from fedgem.inputs import Inputs, check
from fedgem.messages import AboutReply, AboutRequest, Answer, Ask, ClientSettings, Message
from fedgem.rows import Rows

PAUSE = 0.25  # seconds between two looks at the post
PATIENCE = 10.0  # seconds until a client is asked again after something went wrong
LONG = 60.0  # seconds until a greeting is taken for lost


@dataclass(frozen=True, order=True)
class Node:
    """A process that a client runs; one that was started again is another.

    Attributes
    ----------
    id : int
        The address that messages go to.
    started : str
        When it came.
    name : str
        The client that its key belongs to; "" where keys are not asked for.
    """

    id: int
    started: str = ""
    name: str = ""


@dataclass(frozen=True)
class Delivery:
    """What came back for a message: bytes, or the reason why there are none."""

    ticket: str
    data: bytes | None
    reason: str = "lost on the way"


class Transport(Protocol):
    """What carries bytes to nodes and back, at its own pace and without any promise."""

    def nodes(self) -> Collection[Node]:
        """Return who is there."""

    def send(self, mail: Mapping[Node, bytes], seconds: float | None) -> Mapping[Node, str]:
        """Send to each node, of use for so many seconds; return a ticket for each message."""

    def receive(self, tickets: Collection[str]) -> Iterable[Delivery]:
        """Return what has come back for some of these tickets."""

    def time(self) -> float:
        """Return the time in seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


@dataclass(frozen=True)
class Refusal:
    """A message that did not count: of which round and whom, and why."""

    round: int
    client: str
    reason: str


@dataclass(frozen=True)
class _Sent:
    """A message under way."""

    node: Node
    client: str
    exchange: int
    request: Message


class RemoteEngine:
    """Run a federation whose clients are other processes and hold their own rows.

    Parameters
    ----------
    transport : Transport
        What carries the bytes.
    clients : collection of str, optional
        Who may take part; anyone by default. Those who are not there at the start take part from
        the round that they come in.
    expect : int, optional
        How many to wait for at the start; all of `clients`, or one, by default.
    min_clients : int, optional
        How many replies a round takes when `round_timeout` is over; as many as were expected by
        default.
    round_timeout : float, optional
        The seconds after which a round goes on without those who are late. By default it waits.
    say : callable
        Told, in a sentence each, what the one who runs it should know.

    Attributes
    ----------
    refusals : list of Refusal
        What did not count, and why.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        clients: Collection[str] | None = None,
        expect: int | None = None,
        min_clients: int | None = None,
        round_timeout: float | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.transport, self.clients, self.say = transport, clients, say
        self.expect = (len(clients) if clients else 1) if expect is None else expect
        self.min_clients = self.expect if min_clients is None else min_clients
        self.round_timeout = round_timeout
        self.refusals: list[Refusal] = []
        self.about: dict[str, AboutReply] = {}
        self._round = -1
        self._sent: dict[str, _Sent] = {}
        self._node_of: dict[str, Node] = {}
        self._met: dict[Node, float] = {}  # when each was asked about its rows
        for name, value in (("expect", self.expect), ("min_clients", self.min_clients)):
            require(name, value, "a whole number from 1", is_whole(value) and value >= 1)
        require(
            "round_timeout",
            round_timeout,
            "a number of seconds above 0, or None",
            round_timeout is None or (is_number(round_timeout) and round_timeout > 0),
        )

    def inputs(self, X: Any = None, ids: Any = None) -> Inputs:
        """Wait for the clients and return what is known of their rows."""
        if X is not None or ids is not None:
            raise InputError("fit: found rows, expected none where the clients hold them.")
        self.say(f"Waiting for {self.expect} clients.")
        begin = self.transport.time()
        while len(self.about) < self.expect and not (
            self._is_late(begin, self.round_timeout) and len(self.about) >= self.min_clients
        ):
            self._look_at_the_post({}, {})
            self.transport.sleep(PAUSE)
        names = sorted(set(self.about) | set(self.clients or ()))
        # Whoever is there comes first: the others are compared with them.
        there = [name for name in names if name in self.about]
        like = self._opened(there[0])[0]
        absent = Rows.elsewhere((0, like.shape[1]), like.dtype), None
        opened = {name: self._opened(name) for name in there}
        inputs = check(opened | {name: absent for name in names if name not in opened})
        return Inputs(
            {name: inputs.rows[name] for name in names}, inputs.feature_names, inputs.dtype
        )

    def run(
        self,
        state: State,
        clients: Mapping[str, Client],
        *,
        seed: int = 0,
        on_round: Callable[[State], None] | None = None,
    ) -> State:
        """Carry requests and replies as `Engine.run` says."""
        while requests := state.requests():
            begin = self.transport.time()
            self._round = state.round
            asked = {name: (requests[name], settings_of(clients[name])) for name in requests}
            replies = self.exchange(asked)
            state = state.advance(replies, self.transport.time() - begin)
            if on_round is not None:
                on_round(state)
        return state

    def exchange(
        self,
        requests: Mapping[str, tuple[Message, ClientSettings | None]],
        *,
        min_clients: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Ask some clients and return the replies that count, in the order of the requests.

        Parameters
        ----------
        requests : dict of str to (Message, ClientSettings)
            What to ask each client, and the settings that its answer depends on.
        min_clients : int, optional
            How many replies it takes after the timeout; the engine's number by default.
        timeout : float, optional
            The seconds after which a round goes on; the engine's `round_timeout` by default.
        """
        begin, replies = self.transport.time(), dict[str, Message]()
        needed = min(self.min_clients if min_clients is None else min_clients, len(requests))
        timeout = timeout or self.round_timeout
        while len(replies) < len(requests):
            self._look_at_the_post(requests, replies)
            if self._is_late(begin, timeout):
                if len(replies) >= needed:
                    break
                begin = self.transport.time()
                self._forget_requests()  # nothing has come of some: ask them again
            if len(replies) < len(requests):
                self.transport.sleep(PAUSE)
        for name in requests:
            if name not in replies:
                self._refuse(name, f"no reply in {timeout:g} seconds")
        self._forget_requests()
        return {name: replies[name] for name in requests if name in replies}

    def _look_at_the_post(
        self,
        requests: Mapping[str, tuple[Message, ClientSettings | None]],
        replies: dict[str, Message],
    ) -> None:
        """Greet who is new, ask who has not been asked, take in what has come."""
        self._greet(self.transport.nodes())
        under_way = {(sent.client, sent.node) for sent in self._sent.values()}
        missing = {
            self._node_of[name]: (name, *requests[name])
            for name in requests
            if name not in replies
            and name in self._node_of
            and (name, self._node_of[name]) not in under_way
        }
        self._send(missing)
        for delivery in self.transport.receive(list(self._sent)):
            sent = self._sent.get(delivery.ticket)
            if sent is None:
                self._refuse("?", "a reply that nobody waits for")
                continue
            try:
                answer = accepted(delivery, sent)
                if isinstance(answer.reply, AboutReply):
                    self._know(sent.node, answer.client, answer.reply)
                elif answer.client in replies:
                    raise WireError("a second reply")
                else:
                    assert answer.reply is not None
                    replies[answer.client] = answer.reply
            except (WireError, InputError) as error:
                self._refuse(sent.client or sent.node.name or str(sent.node.id), str(error))
                # Its place stays taken for a while, so that it is not asked without a pause.
                self._met[sent.node] = self.transport.time()
                self._node_of = {n: node for n, node in self._node_of.items() if node != sent.node}
            del self._sent[delivery.ticket]

    def _greet(self, nodes: Collection[Node]) -> None:
        """Ask nodes that are new, or were in trouble, about their rows."""
        self._node_of = {name: node for name, node in self._node_of.items() if node in nodes}
        now, known = self.transport.time(), set(self._node_of.values())
        greeted = {sent.node for sent in self._sent.values() if not sent.client}
        new = [
            node
            for node in nodes
            if node not in known
            and now - self._met.get(node, -np.inf) >= (LONG if node in greeted else PATIENCE)
        ]
        self._met = {node: when for node, when in self._met.items() if node in nodes}
        self._met |= dict.fromkeys(new, now)
        self._send({node: ("", AboutRequest(), None) for node in new})

    def _know(self, node: Node, name: str, about: AboutReply) -> None:
        """Take up a client, if it is one of ours and has the columns of the others."""
        if node.name and name != node.name:
            raise WireError(f"it calls itself {name!r}, expected {node.name!r} by its key")
        if self.clients is not None and name not in self.clients:
            raise WireError(f"{name!r} is none of the clients of this run")
        before = self.about.get(name)
        if before is not None and before != about:
            raise WireError(f"{name!r} has other rows than before")
        first = next(iter(self.about), name)
        check({n: _rows_of(self.about.get(n, about)) for n in dict.fromkeys([first, name])})
        self.about[name], self._node_of[name] = about, node
        if before is None:
            self.say(f"{name} is here: {about.n_rows} rows, {about.n_features} columns.")
        else:
            self.say(f"{name} is back.")

    def _send(self, mail: Mapping[Node, tuple[str, Message, ClientSettings | None]]) -> None:
        if not mail:
            return
        # Numbers that nobody can guess: a reply to one is a reply to this very message.
        exchanges = {node: secrets.randbits(62) for node in mail}
        data = {
            node: wire.encode(Ask(exchanges[node], name or node.name, request, settings))
            for node, (name, request, settings) in mail.items()
        }
        for node, ticket in self.transport.send(data, self.round_timeout).items():
            name, request, _ = mail[node]
            self._sent[ticket] = _Sent(node, name, exchanges[node], request)

    def _opened(self, name: str) -> tuple[Rows, tuple[str, ...] | None]:
        return _rows_of(self.about[name])

    def _forget_requests(self) -> None:
        """Wait for no request's reply any longer."""
        self._sent = {t: sent for t, sent in self._sent.items() if not sent.client}

    def _refuse(self, client: str, reason: str) -> None:
        self.refusals.append(Refusal(self._round, client, reason))
        self.say(f"Not counted: {client}: {reason}.")

    def _is_late(self, begin: float, timeout: float | None) -> bool:
        return timeout is not None and self.transport.time() - begin >= timeout


def accepted(delivery: Delivery, sent: _Sent) -> Answer:
    """Return the answer of a delivery, or say in a `WireError` why it is none.

    What a reply says about rows is for the state of the server to check; this is whether it
    answers what was asked at all.
    """
    if delivery.data is None:
        raise WireError(delivery.reason)
    answer = wire.decode(delivery.data, Answer)
    if answer.exchange != sent.exchange:
        raise WireError("a reply to another request")
    if sent.client and answer.client != sent.client:
        raise WireError(f"a reply in the name of {answer.client!r}")
    if answer.error is not None:
        raise WireError(answer.error)
    expected = type(sent.request).__name__.replace("Request", "Reply")
    if type(answer.reply).__name__ != expected:
        raise WireError(f"a {type(answer.reply).__name__}, expected a {expected}")
    if getattr(answer.reply, "round", None) != getattr(sent.request, "round", None):
        raise WireError("a reply of another round")
    return answer


def settings_of(client: Client) -> ClientSettings:
    """Return what a client has to be told to be this one."""
    return ClientSettings(**{f.name: getattr(client, f.name) for f in fields(ClientSettings)})


def _rows_of(about: AboutReply) -> tuple[Rows, tuple[str, ...] | None]:
    shape = about.n_rows, about.n_features
    return Rows.elsewhere(shape, np.dtype(about.dtype)), about.feature_names


class Clock:
    """The time of this machine, for transports that live in it."""

    def time(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

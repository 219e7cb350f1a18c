"""What an engine is, and what it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self, TypeVar

from fedgem.client import Client
from fedgem.inputs import Inputs
from fedgem.messages import Message


class Task(Protocol):
    """What an engine runs: a state of the server."""

    @property
    def round(self) -> int:
        """The round that comes next."""

    def requests(self) -> Mapping[str, Message]:
        """Return the next request to each client; none when the task is done."""

    def advance(self, replies: Mapping[str, Any], seconds: float) -> Self:
        """Return the state that follows on these replies."""


State = TypeVar("State", bound=Task)


class Engine(Protocol):
    """What carries the messages of a round, and knows where the clients' rows are."""

    def inputs(self, X: Any, ids: Any = None) -> Inputs:
        """Return the clients' rows, checked."""

    def run(
        self,
        state: State,
        clients: Mapping[str, Client],
        *,
        seed: int = 0,
        on_round: Callable[[State], None] | None = None,
    ) -> State:
        """Carry requests and replies between a server state and the clients until it is done.

        Parameters
        ----------
        state : a state of the server
            Where to begin; a saved one goes on where it was saved.
        clients : dict of str to Client
            All clients, by name.
        seed : int
            Decides what an engine draws at random.
        on_round : callable, optional
            Called with the new state after every round; what it raises ends the run.
        """

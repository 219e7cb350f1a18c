"""The in-process engine: every client on a thread of this process."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgem.checks import is_number, is_whole, require
from fedgem.client import Client, respond
from fedgem.engines.engine import State
from fedgem.inputs import Inputs, collect


@dataclass(frozen=True)
class LocalEngine:
    """Run a federation inside one process.

    Parameters
    ----------
    n_jobs : int, optional
        Threads; every core by default. The result has the same bits with any number of them.
    participation : float
        The share of the clients that answer in a round, drawn at random each time.

    Examples
    --------
    >>> import numpy as np
    >>> from fedgem import FedGEM
    >>> clients = [np.random.default_rng(g).normal(size=(50, 2)) for g in range(4)]
    >>> engine = LocalEngine(n_jobs=2, participation=0.5)
    >>> FedGEM(engine=engine, random_state=0).fit(clients).means_.shape[1]
    2
    """

    n_jobs: int | None = None
    participation: float = 1.0

    def __post_init__(self) -> None:
        holds = self.n_jobs is None or (is_whole(self.n_jobs) and self.n_jobs >= 1)
        require("n_jobs", self.n_jobs, "a whole number from 1, or None", holds)
        holds = is_number(self.participation) and 0 < self.participation <= 1
        require("participation", self.participation, "a share above 0, at most 1", holds)

    def inputs(self, X: Any, ids: Any = None) -> Inputs:
        """Return the clients' rows, as `fedgem.inputs.collect` does."""
        return collect(X, ids)

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
            Draws who takes part.
        on_round : callable, optional
            Called with the new state after every round; what it raises ends the run.
        """
        # Clients wait for the blocks of their rows, blocks wait for nobody: two pools cannot
        # deadlock, and the second is the one that computes.
        n_jobs = self.n_jobs or os.cpu_count() or 1
        with ThreadPoolExecutor(n_jobs) as for_clients, ThreadPoolExecutor(n_jobs) as for_blocks:
            while requests := state.requests():
                begin = time.perf_counter()
                names = self._present(list(requests), [seed, state.round])
                futures = {
                    name: for_clients.submit(respond, requests[name], clients[name], for_blocks)
                    for name in names
                }
                try:
                    # Woken once, and not for every client.
                    wait(futures.values(), return_when=FIRST_EXCEPTION)
                    replies = {name: future.result() for name, future in futures.items()}
                except BaseException:  # Ctrl-C among them: start nothing more
                    for_clients.shutdown(wait=False, cancel_futures=True)
                    raise
                state = state.advance(replies, time.perf_counter() - begin)
                if on_round is not None:
                    on_round(state)
        return state

    def _present(self, names: list[str], seeds: list[int]) -> list[str]:
        if self.participation >= 1:
            return names
        rng = np.random.default_rng(seeds)
        size = max(1, math.ceil(self.participation * len(names)))
        return [names[i] for i in np.sort(rng.choice(len(names), size=size, replace=False))]

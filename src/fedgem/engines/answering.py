"""A client's side of a federation of processes: from the bytes of a request to those of a reply."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import lru_cache
from typing import Literal

import numpy as np

from fedgem import wire
from fedgem.client import Client, respond
from fedgem.errors import InputError, WireError
from fedgem.files import Source
from fedgem.inputs import check
from fedgem.messages import (
    AboutReply,
    AboutRequest,
    Answer,
    Ask,
    ClientSettings,
    Message,
    ModelReply,
    ModelRequest,
)

FEW = 4  # clients, by their settings, to keep at hand: what they compute once is worth keeping


class Answering:
    """Answer requests from the rows of one client.

    It checks the rows when it is made. Between requests it keeps nothing that the next one could
    not compute again.

    Parameters
    ----------
    source : Source
        The client's name, and its rows.
    keep : callable, optional
        Called with the model that the server sends at the end; returns the rows of each cluster.
    say : callable
        Told, in a sentence each, what was answered, and what went wrong, of which the server
        learns no more than that it did.

    Examples
    --------
    >>> from fedgem.rows import Rows
    >>> rows = Rows.from_array(np.array([[0.0], [2.0]]))
    >>> answer = Answering(Source("plant-1", rows, None, None))
    >>> wire.decode(answer(wire.encode(Ask(7, "plant-1", AboutRequest()))), Answer).reply
    AboutReply(n_rows=2, n_features=1, dtype='float64', feature_names=None)
    """

    def __init__(
        self,
        source: Source,
        keep: Callable[[bytes], list[int]] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.source, self.keep, self.say = source, keep, say
        check({source.name: (source.rows, source.feature_names)})
        self._client = lru_cache(FEW)(self._build)
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1)

    def __call__(self, data: bytes) -> bytes:
        """Answer a request; whatever is wrong with it becomes an answer, too."""
        exchange = 0
        try:
            ask = wire.decode(data, Ask)
            exchange = ask.exchange
            if ask.client not in ("", self.source.name):
                raise WireError(f"a request for {ask.client!r}")
            answer = Answer(exchange, self.source.name, self._reply(ask))
            of_round = f", round {ask.request.round}" if hasattr(ask.request, "round") else ""
            self.say(f"Answered a {type(ask.request).__name__}{of_round}.")
        except WireError as error:
            self.say(f"Not answered: {error}")
            answer = Answer(exchange, self.source.name, error=str(error))
        except Exception as error:  # whatever it says may hold values of rows, and stays here
            self.say(f"Could not answer: {error}")
            answer = Answer(exchange, self.source.name, error=f"it failed: {type(error).__name__}")
        return wire.encode(answer)

    def _reply(self, ask: Ask) -> Message:
        request, rows = ask.request, self.source.rows
        if isinstance(request, AboutRequest):
            dtype: Literal["float32", "float64"]
            dtype = "float32" if rows.dtype == np.float32 else "float64"
            return AboutReply(*rows.shape, dtype, self.source.feature_names)
        if isinstance(request, ModelRequest):
            if self.keep is None:
                raise InputError("Found a model, expected none.")
            return ModelReply(np.array(self.keep(request.model), dtype=np.intp))
        if ask.settings is None:
            raise WireError("a request without settings")
        return respond(request, self._client(wire.encode(ask.settings)), self._pool)

    def _build(self, settings: bytes) -> Client:
        told = wire.decode(settings, ClientSettings)
        given = {f.name: getattr(told, f.name) for f in fields(told)}
        return Client(self.source.name, self.source.rows, **given)

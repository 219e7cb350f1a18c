"""The only things that cross between clients and server.

If a field is not on this page, it does not leave the client. Every message is frozen, checked on
arrival and of a known size: its arrays, plus `ENVELOPE` for each scalar it carries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from numbers import Real
from typing import Any

import numpy as np

from fedgem.gaussian.statistics import Statistics
from fedgem.typing import Array, IntArray

ENVELOPE = 8  # bytes that a scalar field takes


@dataclass(frozen=True)
class Message:
    """Base of all messages: checks what its fields hold, and knows its size."""

    def __post_init__(self) -> None:
        for name, value in leaves(self):
            is_array = isinstance(value, np.ndarray)
            if value.dtype.kind not in "fi" if is_array else not isinstance(value, Real):
                kind = value.dtype if is_array else type(value).__name__
                raise ValueError(f"{type(self).__name__}.{name} holds {kind}, not numbers.")
            if not (np.isfinite(value).all() if is_array else math.isfinite(value)):
                raise ValueError(f"{type(self).__name__}.{name} is not finite.")

    @property
    def n_bytes(self) -> int:
        """The size on the wire."""
        return sum(
            value.nbytes if isinstance(value, np.ndarray) else ENVELOPE for _, value in leaves(self)
        )


def leaves(message: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the arrays and scalars of a message and of its parts, each with its name."""
    for field in fields(message):
        value = getattr(message, field.name)
        if is_dataclass(value):
            yield from leaves(value, f"{prefix}{field.name}.")
        elif value is not None:
            yield prefix + field.name, value


@dataclass(frozen=True)
class MomentsRequest(Message):
    """Server to client: send your features' means and variances.

    Attributes
    ----------
    within : bool
        Whether the variances are those within the client's own clusters, and the means zero.
    """

    within: bool = False


@dataclass(frozen=True)
class MomentsReply(Message):
    """Client to server: all its rows as one component."""

    statistics: Statistics


@dataclass(frozen=True)
class TrainRequest(Message):
    """Server to client: run your local steps from these means.

    Attributes
    ----------
    round : int
        The round, from 0.
    n_steps : int
        The number S of local EM steps.
    means : array of shape (K_g, d), optional
        Where to start. None asks the client to choose its own start, which stays with it: the
        seeds of k-means++ are rows of its data.
    """

    round: int
    n_steps: int
    means: Array | None = None


@dataclass(frozen=True)
class Profile(Message):
    """What a client says once, with its first reply: its size and its fixed weights."""

    n_rows: int
    weights: Array


@dataclass(frozen=True)
class TrainReply(Message):
    """Client to server: what its components are now.

    Attributes
    ----------
    round : int
        The round it answers.
    objective : float
        The local log-likelihood per row at the means that the round started from.
    statistics : Statistics
        Of the last local step: K_g counts and K_g means. They are all that the radius takes
        where the server knows which means the step started from (epsilon = |M - theta'|^2).
    squared_radii : array of shape (K_g,), optional
        The radii, where the server cannot know: on the client's own start, and when S > 1.
    profile : Profile, optional
        With the first reply.
    """

    round: int
    objective: float
    statistics: Statistics
    squared_radii: Array | None = None
    profile: Profile | None = None


@dataclass(frozen=True)
class ScoreRequest(Message):
    """Server to client: score these ways to merge your components on your held-out rows.

    Attributes
    ----------
    means : array of shape (K_g, d)
        The client's components.
    candidates : array of shape (M, K_g)
        The cluster of each component under each of M ways to merge.
    """

    means: Array
    candidates: IntArray


@dataclass(frozen=True)
class ScoreReply(Message):
    """Client to server: a silhouette score for each way, and how many rows it stands for."""

    n_rows: int
    scores: Array

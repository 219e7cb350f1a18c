"""The only things that cross between clients and server.

If a field is not on this page, it does not leave the client. Every message is frozen, checked on
arrival and of a known size: its arrays, plus `ENVELOPE` for each scalar it carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from fedgem.gaussian.covariances import CovarianceType
from fedgem.gaussian.statistics import Statistics
from fedgem.gaussian.subspace import Subspace
from fedgem.typing import Array, IntArray

ENVELOPE = 8  # bytes that a scalar field takes
# The fields that hold words; all others hold numbers.
WORDS = frozenset({"client", "covariance_type", "dtype", "error", "feature_names", "model"})


@dataclass(frozen=True)
class Message:
    """Base of all messages: checks what its fields hold, and knows its size."""

    def __post_init__(self) -> None:
        found = [(name, value) for name, value in leaves(self) if not _is_word(name, value)]
        for name, value in found:
            is_array = isinstance(value, np.ndarray)
            if value.dtype.kind not in "fi" if is_array else not isinstance(value, Real):
                kind = value.dtype if is_array else type(value).__name__
                raise ValueError(f"{type(self).__name__}.{name} holds {kind}, not numbers.")
        # Together first: messages have many arrays, most of them small, and next to none is wrong.
        values = [value for _, value in found]
        # In float64: a scalar may be too large for the float32 of the arrays.
        if values and not np.isfinite(np.concatenate(values, axis=None, dtype=np.float64)).all():
            name = next(name for name, value in found if not np.isfinite(value).all())
            raise ValueError(f"{type(self).__name__}.{name} is not finite.")

    @property
    def n_bytes(self) -> int:
        """The size on the wire."""
        return sum(map(_size, (value for _, value in leaves(self))))


def _is_word(name: str, value: Any) -> bool:
    return isinstance(value, (str, bytes)) and name.rpartition(".")[2] in WORDS


def _size(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, (str, bytes)):
        return len(value.encode() if isinstance(value, str) else value)
    return ENVELOPE


def leaves(message: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the arrays and scalars of a message and of its parts, each with its name."""
    for name in message.__dataclass_fields__:  # `fields` copies them, for every message
        value = getattr(message, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, np.ndarray):  # first, since most are
                yield prefix + name, part
            elif is_dataclass(part):
                yield from leaves(part, f"{prefix}{name}.")
            elif part is not None:
                yield prefix + name, part


@dataclass(frozen=True)
class View(Message):
    """Server to client, with every request: how to look at your rows before you answer.

    Attributes
    ----------
    shift, scale : arrays of shape (d,), optional
        What to take off each feature, and what to divide the rest by.
    centre, basis : arrays of shape (d,) and (d, r), optional
        After that, the subspace to project on.
    fold : int, optional
        Which fold of the rows to hold out.
    """

    shift: Array | None = None
    scale: Array | None = None
    centre: Array | None = None
    basis: Array | None = None
    fold: int | None = None


@dataclass(frozen=True)
class MomentsRequest(Message):
    """Server to client: send your features' means and variances.

    Attributes
    ----------
    within : bool
        Whether the variances are those within the client's own clusters, and the means zero.
    full : bool
        Whether the whole covariance is asked for, and how finely the features are recorded.
    """

    within: bool = False
    full: bool = False


@dataclass(frozen=True)
class MomentsReply(Message):
    """Client to server: all its rows as one component.

    Attributes
    ----------
    statistics : Statistics
        One count, mean and covariance.
    resolution : array of shape (d,), optional
        The variance that rounding hides in each feature.
    """

    statistics: Statistics
    resolution: Array | None = None


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
    covariances : array, optional
        The covariances to start from, in the form of their type; none for identities.
    weights : array of shape (K_g,), optional
        The weights to start from, where they are learned.
    """

    round: int
    n_steps: int
    means: Array | None = None
    covariances: Array | None = None
    weights: Array | None = None


@dataclass(frozen=True)
class Profile(Message):
    """What a client says once, with its first reply.

    Attributes
    ----------
    n_rows : int
        Its size.
    weights : array of shape (K_g,)
        Its fixed weights; where they are learned, the first.
    prior : array of shape (d, d), (d,) or (), optional
        The covariance that those of its components shrink towards; none for identities.
    """

    n_rows: int
    weights: Array
    prior: Array | None = None


@dataclass(frozen=True)
class TrainReply(Message):
    """Client to server: what its components are now.

    Attributes
    ----------
    round : int
        The round it answers.
    objective : float
        The local objective per row at the components that the round started from: the
        log-likelihood, and the prior terms of `fedgem.gaussian.mstep` where something is learned.
    statistics : Statistics
        Of the last local step: K_g counts, K_g means and, but for identities, the covariances in
        the form of their type. They are all that the radius takes where the server knows which
        means and covariances the step started from (epsilon = |M - theta'|^2).
    squared_radii : array of shape (K_g,), optional
        The radii, where the server cannot know: on the client's own start, and when S > 1.
    profile : Profile, optional
        With the first reply.
    shapes : array, optional
        With radii, the covariances that they are measured in, in the form of their type.
    """

    round: int
    objective: float
    statistics: Statistics
    squared_radii: Array | None = None
    profile: Profile | None = None
    shapes: Array | None = None


@dataclass(frozen=True)
class FitRequest(Message):
    """Server to client: fit your own mixture.

    Attributes
    ----------
    round : int
        The round, from 0.
    floor : array of shape (d,)
        Variances that keep covariances positive definite.
    """

    round: int
    floor: Array


@dataclass(frozen=True)
class FitReply(Message):
    """Client to server: its own components.

    Attributes
    ----------
    round : int
        The round it answers.
    n_rows : int
        How many rows the client has.
    objective : float
        Their log-likelihood per row.
    statistics : Statistics
        Counts, means and covariances.
    """

    round: int
    n_rows: int
    objective: float
    statistics: Statistics


@dataclass(frozen=True)
class SharedPart:
    """Those components of a shared mixture that a client may use, and its weights for them."""

    means: Array
    weights: Array
    covariances: Array | None = None


@dataclass(frozen=True)
class ShareRequest(Message):
    """Server to client: run the E-step under each of these mixtures.

    Attributes
    ----------
    round : int
        The round.
    overlap : bool
        Whether the products of responsibilities are asked for.
    parts : tuple of SharedPart
        A mixture each.
    """

    round: int
    overlap: bool
    parts: tuple[SharedPart, ...]


@dataclass(frozen=True)
class ShareReply(Message):
    """Client to server: what the client's rows add to each mixture.

    Attributes
    ----------
    round : int
        The round it answers.
    n_rows : int
        How many rows the client has.
    log_likelihoods : array of shape (n_mixtures,)
        Of the client's rows under each mixture.
    statistics : tuple of Statistics
        For each mixture, counts, means and covariances of the components that were sent.
    """

    round: int
    n_rows: int
    log_likelihoods: Array
    statistics: tuple[Statistics, ...]


@dataclass(frozen=True)
class RelianceRequest(Message):
    """Server to client: say what other clients' rows should count beside yours.

    Attributes
    ----------
    part : SharedPart
        The components that the client has, and its weights.
    others : Statistics
        All other clients' statistics of these components.
    floor : array of shape (d,)
        Variances that keep covariances positive definite.
    """

    part: SharedPart
    others: Statistics
    floor: Array


@dataclass(frozen=True)
class RelianceReply(Message):
    """Client to server: what they should count, from 0 to 1."""

    reliance: float


@dataclass(frozen=True)
class ScoreRequest(Message):
    """Server to client: score these ways to merge your components on your held-out rows.

    Attributes
    ----------
    means : array of shape (K_g, d)
        The client's components.
    candidates : array of shape (M, K_g)
        The cluster of each component under each of M ways to merge.
    covariances : array of shape (K_g, d, d), (K_g, d) or (K_g,), optional
        The components' covariances; none for identities.
    weights : array of shape (K_g,), optional
        Their weights, where they are learned.
    """

    means: Array
    candidates: IntArray
    covariances: Array | None = None
    weights: Array | None = None


@dataclass(frozen=True)
class ScoreReply(Message):
    """Client to server: a silhouette score for each way, and how many rows it stands for."""

    n_rows: int
    scores: Array


@dataclass(frozen=True)
class NoveltyRequest(Message):
    """Server to client: count how far your rows lie from the nearest component.

    Attributes
    ----------
    part : SharedPart
        All components of the mixture, and the client's weights for them, some of them zero.
    counts : array of shape (M,)
        How many rows of all clients each component answers for.
    subspace : Subspace
        Where the components are.
    """

    part: SharedPart
    counts: Array
    subspace: Subspace


@dataclass(frozen=True)
class NoveltyReply(Message):
    """Client to server: how many of its rows have a score in each bin of a fixed grid."""

    counts: Array


@dataclass(frozen=True)
class EnrolRequest(Message):
    """Server to a newcomer: tell which of these clusters you have, and which others.

    Attributes
    ----------
    part : SharedPart
        All components, each with its share of its cluster.
    cluster_of : array of shape (M,)
        The cluster of each component.
    subspace : Subspace
        Where the components are.
    prior : array of shape (d, d)
        The components' pooled covariance, which those of new clusters shrink towards.
    calibration : array of shape (B,)
        How many known rows have a score in each bin of the grid of novelty.
    """

    part: SharedPart
    cluster_of: IntArray
    subspace: Subspace
    prior: Array
    calibration: Array


@dataclass(frozen=True)
class EnrolReply(Message):
    """Newcomer to server: the clusters that it has.

    Attributes
    ----------
    n_rows : int
        How many rows it has.
    weights : array of shape (K + n,)
        Its share of each known cluster, 0 where absent, and of each of n new ones.
    statistics : Statistics
        How many of its rows each component answers for, and their means, new components last.
    new : SharedPart
        The components of new clusters.
    """

    n_rows: int
    weights: Array
    statistics: Statistics
    new: SharedPart


@dataclass(frozen=True)
class AboutRequest(Message):
    """Server to client: say what your rows look like."""


@dataclass(frozen=True)
class AboutReply(Message):
    """Client to server: the shape of its rows, and what their columns are called.

    Attributes
    ----------
    n_rows, n_features : int
        The shape.
    dtype : {"float32", "float64"}
        Of the values.
    feature_names : tuple of str, optional
        The columns, in order, where they have names.
    """

    n_rows: int
    n_features: int
    dtype: Literal["float32", "float64"]
    feature_names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ModelRequest(Message):
    """Server to client, at the end: keep this model.

    Attributes
    ----------
    model : bytes
        The shared clusters and the client's own weights, as `FedGEM.save` writes them.
    """

    model: bytes


@dataclass(frozen=True)
class ModelReply(Message):
    """Client to server: how many of its rows each cluster got."""

    counts: IntArray


@dataclass(frozen=True)
class ClientSettings(Message):
    """Server to client, with every request that needs rows: all that the answer depends on.

    The attributes are those of `fedgem.client.Client`, which is built from them at the client.
    """

    weights: Array
    seed: int
    n_init: int
    covariance_type: CovarianceType
    learn_weights: bool
    reg_covar: float
    view: View


@dataclass(frozen=True)
class Ask(Message):
    """What a request travels in where clients are other processes.

    Attributes
    ----------
    exchange : int
        A number of this request's own, which the answer repeats.
    client : str
        Whom it is for.
    request : Message
        The request.
    settings : ClientSettings, optional
        Where the answer takes rows.
    """

    exchange: int
    client: str
    request: Message
    settings: ClientSettings | None = None


@dataclass(frozen=True)
class Answer(Message):
    """What a reply travels in: the reply, or why there is none.

    Attributes
    ----------
    exchange : int
        That of the request.
    client : str
        Who answers.
    reply : Message, optional
        The reply.
    error : str, optional
        What was wrong, in a sentence.
    """

    exchange: int
    client: str
    reply: Message | None = None
    error: str | None = None

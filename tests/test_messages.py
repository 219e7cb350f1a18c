from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from fedgem.gaussian.statistics import Statistics
from fedgem.messages import (
    ENVELOPE,
    MomentsReply,
    MomentsRequest,
    Profile,
    ScoreReply,
    ScoreRequest,
    TrainReply,
    TrainRequest,
)

K, D = 3, 2
STATISTICS = Statistics(np.ones(K), np.ones((K, D)))
PROFILE = Profile(7, np.ones(K))

SIZES = [
    (MomentsRequest(), 0, 2),
    (MomentsReply(Statistics(np.ones(1), np.ones((1, D)), np.ones((1, D)))), 1 + 2 * D, 0),
    (TrainRequest(0, 1), 0, 2),
    (TrainRequest(1, 1, np.ones((K, D))), K * D, 2),
    (TrainRequest(1, 1, np.ones((K, D)), np.ones((D, D)), np.ones(K)), K * D + D**2 + K, 2),
    (TrainReply(0, -1.5, STATISTICS), K * (D + 1), 2),
    (TrainReply(0, -1.5, STATISTICS, np.ones(K), PROFILE), K * (D + 1) + 2 * K, 3),
    (ScoreRequest(np.ones((K, D)), np.zeros((4, K), np.intp)), K * D + 4 * K, 0),
    (ScoreReply(9, np.ones(4)), 4, 1),
]


@pytest.mark.parametrize(("message", "n_numbers", "n_scalars"), SIZES)
def test_size_is_that_of_the_arrays_and_an_envelope_for_each_scalar(message, n_numbers, n_scalars):
    assert message.n_bytes == 8 * n_numbers + ENVELOPE * n_scalars


def test_size_follows_the_precision_of_the_arrays():
    assert ScoreReply(9, np.ones(4, np.float32)).n_bytes == 4 * 4 + ENVELOPE


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda bad: TrainRequest(0, 1, np.full((1, 1), bad)), "TrainRequest.means"),
        (lambda bad: TrainReply(0, bad, STATISTICS), "TrainReply.objective"),
        (lambda bad: TrainReply(0, 0.0, STATISTICS, np.array([0.0, bad])), "squared_radii"),
        (lambda bad: MomentsReply(Statistics(np.array([bad]), np.ones((1, 1)))), "counts"),
        (lambda bad: Profile(1, np.array([bad])), "Profile.weights"),
    ],
)
def test_what_is_not_finite_is_refused(build, field, bad):
    with pytest.raises(ValueError, match=rf"{field} is not finite"):
        build(bad)


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (np.array([["x"]]), "<U1"),
        (np.array([[1.0]], object), "object"),
        (np.array([[True]]), "bool"),
        (np.array([[1j]]), "complex128"),
        ([[1.0]], "list"),
        ("1.0", "str"),
    ],
)
def test_what_is_no_number_is_refused(bad, kind):
    with pytest.raises(ValueError, match=rf"TrainRequest.means holds {kind}, not numbers"):
        TrainRequest(0, 1, bad)
    with pytest.raises(ValueError, match=rf"TrainReply.statistics.means holds {kind}"):
        TrainReply(0, 0.0, Statistics(np.ones(1), bad))


def test_messages_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        TrainRequest(0, 1).round = 2

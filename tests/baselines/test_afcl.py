import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from fedgem import FedGEM
from fedgem.baselines import METHODS
from fedgem.baselines.afcl import (
    AFCL,
    RATE,
    StartReply,
    UpdateReply,
    feature_rates,
    interact,
    reconstruct_rows,
)
from fedgem.client import Client, respond
from fedgem.datasets import make_federated_blobs
from fedgem.inputs import collect
from fedgem.messages import SharedPart, ShareRequest, TrainReply, leaves
from fedgem.rows import Rows


class Listening:
    """An engine that keeps what it carries."""

    def __init__(self):
        self.heard = []

    def inputs(self, X, ids=None):
        return collect(X, ids)

    def run(self, state, clients, *, seed=0, on_round=lambda state: None):
        while requests := state.requests():
            replies = {name: respond(asked, clients[name]) for name, asked in requests.items()}
            self.heard += [(name, requests[name], reply) for name, reply in replies.items()]
            state = state.advance(replies, 0.0)
            on_round(state)
        return state


def after(row, wins):
    """Let seeds at 0, 1 and 10 compete for one row; return where they are then, and the wins."""
    seeds, wins = np.array([[0.0], [1.0], [10.0]]), np.array(wins, dtype=float)
    interact(np.array([[row]]), np.array([0.1]), wins, seeds)
    return seeds.ravel().tolist(), wins.tolist()


def test_the_winner_and_the_seeds_no_further_from_it_than_the_row_make_a_step():
    assert after(2.0, [1, 1, 1]) == (pytest.approx([0.2, 1.1, 10.0]), [1, 2, 1])


def test_seeds_further_from_the_winner_than_the_row_stay():
    assert after(1.5, [1, 1, 1]) == (pytest.approx([0.0, 1.05, 10.0]), [1, 2, 1])


def test_a_seed_that_has_won_often_loses_to_a_fresh_one():
    # 0.25 * 10 against 2.25 * 1: the seed at 0 wins, and that at 1 is within its reach.
    assert after(1.5, [1, 10, 1]) == (pytest.approx([0.15, 1.05, 10.0]), [2, 10, 1])


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6))
def test_rates_have_a_fixed_mean_and_order_features_by_how_little_they_pull(pulls):
    rates = feature_rates(np.array(pulls))
    assert rates.mean() == pytest.approx(RATE)
    assert (np.diff(rates[np.argsort(pulls)]) <= 1e-12).all()


def test_seeds_of_one_cluster_come_together():
    blobs = make_federated_blobs(n_clusters=5, min_distance=10, random_state=0)
    model = AFCL(3, random_state=0).fit(blobs.clients)
    truth = np.concatenate(list(blobs.labels.values()))
    assert model.n_clusters_ == 5
    assert adjusted_rand_score(truth, np.concatenate(model.labels_)) == 1
    active = [set(made.bytes_up) for made in model.history_[2:-1]]
    assert len(set(map(frozenset, active))) > 1


def test_every_round_moves_the_seeds():
    clients = make_federated_blobs(random_state=1).clients
    one, two = (AFCL(2, max_iter=n, random_state=0).fit(clients).means_ for n in (1, 2))
    assert one.shape == two.shape
    assert not np.isclose(one, two).all(axis=1).any()


def in_order(rows):
    return rows[np.lexsort(rows.T)]


def test_the_server_of_afcl_recovers_every_row():
    rng = np.random.default_rng(0)
    clients = {name: rng.normal(50, [1, 10, 100], size=(40, 3)) for name in "abc"}
    engine = Listening()
    AFCL(2, max_iter=5, engine=engine, random_state=0).fit(clients)
    extents = [reply for _, _, reply in engine.heard[: len(clients)]]
    least = np.min([reply.least for reply in extents], axis=0)
    span = np.max([reply.largest for reply in extents], axis=0) - least
    recovered = {
        name: least + span * reconstruct_rows(request, reply)
        for name, request, reply in engine.heard
        if isinstance(reply, UpdateReply)
    }
    for name, X in clients.items():
        np.testing.assert_allclose(in_order(recovered[name]), in_order(X), rtol=1e-9)
    for name, _, reply in engine.heard:
        if isinstance(reply, StartReply):  # the start already gives rows away
            near = np.abs((least + span * reply.seeds)[:, None] - clients[name]).max(axis=2)
            assert (near.min(axis=1) < 1e-9).all()


def two_sets_of_rows():
    """Return two clusters that lie apart, and the same turned about their means: other rows."""
    offsets = np.random.default_rng(0).normal(size=(2, 40, 3))
    offsets -= offsets.mean(axis=1, keepdims=True)
    centres = 50 * np.eye(3)[:2, None]
    return [(centres + sign * offsets).reshape(80, 3) for sign in (1, -1)]


def assert_same(replies, others):
    for (name, value), (_, other) in zip(leaves(replies), leaves(others), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("seed", range(3))
def test_one_reply_of_fedgem_fits_different_rows(seed):
    # Counts, means and covariances are all that it says of the rows, so that no function of it
    # can tell which of the two sets they are.
    rng = np.random.default_rng(seed)
    means = 50 * np.eye(3)[:2] + rng.normal(size=(2, 3))
    shapes = np.stack([np.diag(rng.uniform(0.5, 2, size=3)) for _ in range(2)])
    request = ShareRequest(0, True, (SharedPart(means, np.array([0.4, 0.6]), shapes),))
    replies = [
        respond(
            request,
            Client("a", Rows.from_array(X), np.ones(2) / 2, seed=0, covariance_type="full"),
        )
        for X in two_sets_of_rows()
    ]
    assert_same(*replies)


def test_all_that_the_paper_s_preset_trains_with_fits_different_rows():
    heard = []
    for X in two_sets_of_rows():
        engine = Listening()
        FedGEM.paper(n_local_components=2, engine=engine, random_state=0).fit({"a": X, "b": X + 5})
        heard.append([reply for _, _, reply in engine.heard if isinstance(reply, TrainReply)])
    assert len(heard[0]) == len(heard[1]) > 2
    for replies in zip(*heard, strict=True):
        assert_same(*replies)


def test_it_is_told_how_many_clusters_a_client_has_but_not_how_many_there_are():
    known = {"n_clusters": 4, "n_local_components": 3, "random_state": 1}
    assert METHODS["AFCL"].informed(**known).n_local_components == 3
    assert "n_clusters" not in AFCL().get_params()

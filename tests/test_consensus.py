import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fedgem import FedGEM, storage
from fedgem.client import Client, respond
from fedgem.consensus import Consensus, ConsensusSettings, interval, number_probabilities
from fedgem.engines.local import LocalEngine
from fedgem.gaussian.statistics import Statistics
from fedgem.rows import Rows
from fedgem.shared import SharedMixture
from soundness import assert_sound, separated
from strategies import COVARIANCE_TYPES, seeds

TWO_OF_THREE = [(0, 1), (1, 2), (0, 2), (0, 1)]


def assert_finds(model, rows, truth, n_clusters):
    assert_sound(model, rows)
    assert model.n_clusters_ == n_clusters
    labels = np.concatenate(model.labels_)
    assert adjusted_rand_score(np.concatenate(list(truth.values())), labels) > 0.99


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_three_clusters_of_which_each_client_has_two(covariance_type):
    rows, truth = separated(TWO_OF_THREE)
    model = FedGEM(2, covariance_type=covariance_type, random_state=0).fit(rows)
    assert_finds(model, rows, truth, 3)
    assert_array_equal(model.memberships_.sum(axis=1), 2)
    centres = [[0, 0, 0], [12, 0, 0], [0, 12, 0]]
    nearest = np.abs(model.means_[:, None] - centres).max(axis=2).min(axis=1)
    assert nearest.max() < 0.5


def test_clients_find_their_own_number():
    rows, truth = separated(TWO_OF_THREE)
    assert_finds(FedGEM(random_state=0).fit(rows), rows, truth, 3)


def test_clients_too_small_to_guess_their_numbers_learn_them_from_the_others():
    rng = np.random.default_rng(0)
    centres = 5 * np.eye(5)[:3]
    truth = {f"client-{g}": np.repeat(own, 15) for g, own in enumerate(TWO_OF_THREE * 5)}
    rows = {name: centres[own] + rng.normal(size=(30, 5)) for name, own in truth.items()}
    guesses = [FedGEM(random_state=0).fit([X]).n_clusters_ for X in rows.values()]
    assert min(guesses) == 1
    model = FedGEM(random_state=0).fit(rows)
    assert_finds(model, rows, truth, 3)
    assert_array_equal(model.memberships_.sum(axis=1), 2)


@pytest.mark.parametrize(
    ("clusters", "n_local", "n_clusters"),
    [
        ([(0,), (0,), (1,), (1,), (2,), (3,), (4,), (4,)], 1, 5),
        ([(0, 1), (2, 3), (4, 5)], 2, 6),
    ],
    ids=["one each", "nothing shared"],
)
def test_more_clusters_than_twice_what_any_client_has(clusters, n_local, n_clusters):
    rows, truth = separated(clusters)
    assert_finds(FedGEM(n_local, random_state=0).fit(rows), rows, truth, n_clusters)


def test_half_of_the_clients_at_a_time():
    rows, truth = separated(TWO_OF_THREE * 2)
    engine = LocalEngine(n_jobs=1, participation=0.5)
    model = FedGEM(2, engine=engine, random_state=0).fit(rows)
    assert {len(row.bytes_up) for row in model.history_} == {4}
    assert_finds(model, rows, truth, 3)


def run_of(n_clients=4, max_iter=3):
    """A server's state to begin with, and clients."""
    rows, _ = separated((TWO_OF_THREE * 3)[:n_clients], n_rows=30)
    clients = {
        name: Client(name, Rows.from_array(X), np.ones(2) / 2, 0, covariance_type="full")
        for name, X in rows.items()
    }
    settings = ConsensusSettings(max_iter, "full", np.full(3, 1e-6))
    n_local = np.full(n_clients, 2)
    return Consensus(tuple(clients), settings, np.zeros(n_clients, np.intp), n_local), clients


def assert_same_result(found, expected):
    assert found.phase == expected.phase == "done"
    assert found.round == expected.round
    assert sorted(found.best) == sorted(expected.best)
    assert_array_equal(found.result.statistics.means, expected.result.statistics.means)
    assert_array_equal(found.result.statistics.covariances, expected.result.statistics.covariances)
    assert_array_equal(found.result.local_counts, expected.result.local_counts)
    assert_array_equal(found.result.log_likelihoods, expected.result.log_likelihoods)
    for row, other in zip(found.history, expected.history, strict=True):
        assert replace(row, seconds=0.0) == replace(other, seconds=0.0)


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_same_bits_for_any_number_of_threads(participation):
    start, clients = run_of()
    ends = [LocalEngine(n, participation).run(start, clients, seed=1) for n in (1, 2, 5)]
    for end in ends[1:]:
        assert_same_result(end, ends[0])


def test_a_state_that_was_stored_goes_on_to_the_same_bits(tmp_path):
    start, clients = run_of()
    states = [start]
    end = LocalEngine(1).run(start, clients, on_round=states.append)
    first = {state.phase: state for state in reversed(states)}
    assert list(first) == ["done", "shape", "number", "spread", "fit"]
    for phase, state in first.items():
        storage.save(tmp_path / phase, "a state", state)
        loaded = storage.load(tmp_path / phase, "a state")
        assert_same_result(LocalEngine(1).run(loaded, clients), end)


@settings(max_examples=25)
@given(seeds)
def test_it_ends_whoever_answers(seed):
    rng = np.random.default_rng(seed)
    state, clients = run_of(n_clients=3, max_iter=2)
    while requests := state.requests():
        present = [name for name in requests if rng.random() < 0.4]
        replies = {name: respond(requests[name], clients[name]) for name in present}
        state = state.advance(replies)
        assert state.round < 200
    assert 2 <= state.result.n_clusters <= 6
    assert np.isfinite(state.result.statistics.means).all()
    assert np.isfinite(state.result.statistics.covariances).all()
    assert_allclose(sum(number_probabilities(state).values()), 1.0)


def test_nobody_answers_at_first():
    state, clients = run_of()
    for _ in range(3):
        state = state.advance({})
    assert state.phase == "fit"
    assert LocalEngine(1).run(state, clients).result.n_clusters == 3


def scored(log_likelihoods, n_local=5):
    """A finished run: for each number of clusters from 2, the clients' log-likelihoods."""
    n_clients = len(log_likelihoods[0])
    best = {}
    for k, likelihoods in enumerate(log_likelihoods, 2):
        some = Statistics(np.ones(k), np.zeros((k, 3)), np.ones((k, 3, 3)))
        best[k] = SharedMixture(
            some, np.arange(k), np.ones((n_clients, k)), np.array(likelihoods, float)
        )
    names = tuple(map(str, range(n_clients)))
    settings = ConsensusSettings(1, "full", np.zeros(3))
    n_rows, n_own = np.full(n_clients, 50), np.full(n_clients, n_local)
    return Consensus(names, settings, n_rows, n_own, phase="done", best=best)


def test_probabilities_of_numbers_are_quick_for_many_clients():
    rng = np.random.default_rng(0)
    state = scored(-100 + rng.normal(size=(30, 100)))
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        found = number_probabilities(state)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.3
    assert_allclose(sum(found.values()), 1.0)
    assert list(found) == list(range(2, 32))


def test_probabilities_are_those_of_resampled_clients():
    """One client out of five speaks for three clusters, and for nothing else than that."""
    likelihoods = np.full((2, 5), -100.0)
    likelihoods[1, 0] += 1e4
    found = number_probabilities(scored(likelihoods), n_resamples=4000)
    assert_allclose(found[3], 1 - (4 / 5) ** 5, atol=0.03)  # it is drawn at all
    everyone = number_probabilities(scored(likelihoods + np.array([[0.0], [1e4]])))
    assert everyone == {2: 0.0, 3: 1.0}


def test_who_did_not_answer_has_no_say_in_the_number():
    likelihoods = np.full((2, 4), -100.0)
    likelihoods[1] -= 5.0
    alone = likelihoods.copy()
    alone[1, 2] = np.nan
    assert number_probabilities(scored(alone)) == number_probabilities(scored(likelihoods))


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9), st.sampled_from([0.5, 0.9]))
def test_an_interval_leaves_out_no_more_than_its_tails(shares, level):
    p = (np.array(shares) + 1e-3) / (np.array(shares) + 1e-3).sum()
    first, last = interval(dict(enumerate(p, 4)), level)
    tail = (1 - level) / 2
    numbers = np.arange(4, 4 + len(p))
    assert p[numbers < first].sum() <= tail + 1e-9
    assert p[numbers > last].sum() <= tail + 1e-9
    # and is no wider than that takes
    assert p[numbers <= first].sum() > tail
    assert p[numbers >= last].sum() > tail - 1e-9

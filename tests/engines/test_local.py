import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedgem import InputError
from fedgem.client import Client
from fedgem.engines.local import LocalEngine
from fedgem.rows import Rows
from fedgem.server import Components, Settings, Training


def clients(n=6, n_rows=80):
    rng = np.random.default_rng(0)
    found = {}
    for g in range(n):
        X = rng.normal(size=(n_rows, 3)) + 4 * rng.integers(0, 2, size=(n_rows, 1))
        found[str(g)] = Client(str(g), Rows.from_array(X), np.array([0.5, 0.5]), seed=1)
    return found


def train(engine, on_round=None):
    return engine.run(Training(tuple(clients()), Settings()), clients(), on_round=on_round)


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_same_bits_for_any_number_of_threads(participation):
    ends = [train(LocalEngine(n, participation)) for n in (1, 2, 8)]
    for end in ends[1:]:
        assert_array_equal(Components.of(end).means, Components.of(ends[0]).means)


def test_participation_draws_that_share_of_the_clients():
    history = train(LocalEngine(participation=0.5)).history
    assert {len(row.bytes_up) for row in history} == {3}
    assert len({tuple(row.bytes_up) for row in history}) > 1


def test_participation_keeps_at_least_one_client():
    assert {len(row.bytes_up) for row in train(LocalEngine(participation=0.01)).history} == {1}


def test_what_a_callback_raises_ends_the_run():
    def stop(state):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(LocalEngine(2), stop)


def test_what_a_client_raises_reaches_the_caller():
    broken = clients()

    def read():
        raise OSError("the disk is gone")

    broken["3"] = Client("3", Rows((10, 3), np.dtype(float), read), np.array([0.5, 0.5]), 1)
    with pytest.raises(OSError, match="the disk is gone"):
        LocalEngine(2).run(Training(tuple(broken), Settings()), broken)


def test_a_run_goes_on_from_any_saved_state():
    saved = []
    end = train(LocalEngine(participation=0.5), saved.append)
    for state in saved[:-1]:
        again = LocalEngine(participation=0.5).run(state, clients())
        assert_array_equal(Components.of(again).means, Components.of(end).means)


@pytest.mark.parametrize(
    "wrong", [{"n_jobs": 0}, {"n_jobs": 1.5}, {"participation": 0}, {"participation": 1.1}]
)
def test_refuses_what_makes_no_sense(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        LocalEngine(**wrong)

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from fedgem import FederatedScaler, FedGEM, InputError, wire
from fedgem.client import Client
from fedgem.engines.remote import Node, RemoteEngine, settings_of
from fedgem.gaussian.statistics import Statistics
from fedgem.messages import Answer, Ask, MomentsReply, MomentsRequest, ScoreReply
from fedgem.rows import Rows
from same import assert_same_model
from strategies import COVARIANCE_TYPES
from transports import Direct, answers_of


def federation(n=4, n_rows=60, d=3):
    rng = np.random.default_rng(3)
    centres = 8 * rng.normal(size=(5, d))
    return {
        f"plant-{g}": centres[rng.choice(rng.permutation(5)[:3], n_rows)]
        + rng.normal(size=(n_rows, d))
        for g in range(n)
    }


MODELS = [
    *(
        {"covariance_type": kind, "n_local_components": 3, "max_iter": 3}
        for kind in COVARIANCE_TYPES
    ),
    {"max_iter": 2, "scale": True},
    *({"upsilon": "auto", "n_local_components": 3, "covariance_type": k} for k in COVARIANCE_TYPES),
    {"upsilon": 2.0, "n_local_components": 2, "scale": True, "n_local_steps": 2},
]


@pytest.mark.parametrize("params", MODELS, ids=lambda p: "-".join(map(str, p.values())))
def test_the_result_is_that_of_one_process_to_the_last_bit(params):
    X = federation()
    engine = RemoteEngine(Direct(answers_of(X)), expect=4)
    found = FedGEM(engine=engine, random_state=0, **params).fit()
    assert_same_model(found, FedGEM(random_state=0, **params).fit(X))
    assert not hasattr(found, "labels_")
    assert engine.refusals == []


class Post(Direct):
    """Lets a test change what comes back: `spoil` maps a client to what is made of its answer."""

    spoil = None

    def answer(self, node, data):
        name = self.places[node]
        answer = super().answer(node, data)
        about = wire.decode(answer, Answer)
        if name not in (self.spoil or ()) or type(about.reply).__name__ == "AboutReply":
            return answer
        return self.spoil[name](about, answer)


def greeted(X, transport=Direct, **params):
    engine = RemoteEngine(transport(answers_of(X)), expect=len(X), **params)
    engine.inputs()
    return engine


def ask_moments(engine, X):
    told = settings_of(Client("", Rows.from_array(np.ones((1, 3))), np.ones(1), 0))
    return engine.exchange({name: (MomentsRequest(), told) for name in X})


SPOILED = [
    (lambda answer, data: b"", "0 bytes"),
    (lambda answer, data: data[:-1], "cut off"),
    (lambda answer, data: None, "lost"),
    (lambda answer, data: replaced(answer, exchange=5), "a reply to another request"),
    (lambda answer, data: replaced(answer, client="plant-1"), "in the name of 'plant-1'"),
    (lambda answer, data: replaced(answer, reply=ScoreReply(1, np.ones(1))), "a ScoreReply, exp"),
    (
        lambda answer, data: replaced(answer, reply=None, error="it failed: ValueError"),
        "ValueError",
    ),
]


def replaced(answer, **parts):
    return wire.encode(Answer(**vars(answer) | parts))


@pytest.mark.parametrize(("spoil", "reason"), SPOILED)
def test_what_does_not_answer_the_question_does_not_count(spoil, reason):
    X = federation()
    engine = greeted(X, Post, min_clients=3, round_timeout=5.0)
    engine.transport.spoil = {"plant-2": spoil}
    assert list(ask_moments(engine, X)) == ["plant-0", "plant-1", "plant-3"]
    assert engine.refusals[0].client == "plant-2"
    assert reason in engine.refusals[0].reason
    assert engine.refusals[-1].reason == "no reply in 5 seconds"


class Lossy(Direct):
    """Loses what comes from some nodes."""

    silent = ()

    def receive(self, tickets):
        return [d for d in super().receive(tickets) if d.data not in self.silent]

    def answer(self, node, data):
        if self.places[node] in self.silent and b"AboutRequest" not in data:
            return None
        return super().answer(node, data)

    def send(self, mail, seconds):
        tickets = super().send(mail, seconds)
        self.replies = {t: d for t, d in self.replies.items() if d.data is not None}
        return tickets


def test_a_round_waits_for_as_many_as_it_needs():
    X = federation()
    engine = greeted(X, Lossy, min_clients=3, round_timeout=7.0)
    engine.transport.silent = ("plant-0",)
    begin = engine.transport.now
    assert len(ask_moments(engine, X)) == 3
    assert engine.transport.now - begin == pytest.approx(7.0, abs=0.5)


def test_who_starts_again_is_asked_again_in_the_same_round():
    X = federation()
    engine = greeted(X, Lossy)  # waits for all, however long it takes
    transport = engine.transport
    transport.silent = ("plant-1",)
    begin = transport.now

    def sleep(seconds):
        transport.now += seconds
        if transport.now - begin > 60 and transport.silent:
            transport.silent = ()
            transport.places = {
                Node(n.id, "again" if name == "plant-1" else "", n.name): name
                for n, name in transport.places.items()
            }

    transport.sleep = sleep
    assert list(ask_moments(engine, X)) == list(X)


def test_who_comes_later_takes_part_from_then_on():
    X = federation()
    transport = Direct(answers_of(X))
    places = dict(transport.places)
    late = next(node for node, name in places.items() if name == "plant-3")
    del transport.places[late]
    engine = RemoteEngine(transport, clients=list(X), expect=3, round_timeout=2.0)
    rounds = []

    def come(row):
        rounds.append(set(row.bytes_up))
        transport.places.update(places)

    model = FedGEM(2, max_iter=2, random_state=0, engine=engine).fit(callbacks=[come])
    assert rounds[0] == set(X) - {"plant-3"}
    assert rounds[-1] == set(X)
    assert model.clients_ == tuple(X)


def test_a_reply_that_comes_twice_counts_once():
    class Twice(Direct):
        def receive(self, tickets):
            return [d for delivery in super().receive(tickets) for d in (delivery, delivery)]

    X = federation()
    engine = RemoteEngine(Twice(answers_of(X)), expect=4)
    found = FederatedScaler(engine=engine).fit()
    assert_array_equal(found.mean_, FederatedScaler().fit(X).mean_)
    assert {r.reason for r in engine.refusals} == {"a reply that nobody waits for"}


def test_clients_must_have_the_same_columns():
    frame = pd.DataFrame(np.ones((3, 2)), columns=["a", "b"])
    X = {"x": frame, "y": frame.rename(columns={"b": "c"})}
    engine = RemoteEngine(Direct(answers_of(X)), expect=2, min_clients=1, round_timeout=1.0)
    assert list(engine.inputs().rows) == ["x"]
    assert "Client 'y': found column 2 to be 'c', expected 'b'" in engine.refusals[0].reason


def test_only_who_may_takes_part():
    X = federation()
    engine = RemoteEngine(
        Direct(answers_of(X)), clients=["plant-0", "plant-1"], min_clients=2, round_timeout=1.0
    )
    assert list(engine.inputs().rows) == ["plant-0", "plant-1"]
    assert {r.client for r in engine.refusals} == {"2", "3"}


def test_a_key_gives_a_client_its_name():
    X = federation(2)
    transport = Direct(answers_of(X), named=True)
    transport.places = {Node(n.id, "", "plant-0"): name for n, name in transport.places.items()}
    engine = RemoteEngine(transport, expect=2, min_clients=1, round_timeout=1.0)
    assert list(engine.inputs().rows) == ["plant-0"]
    assert "a request for 'plant-0'" in engine.refusals[0].reason


def test_rows_that_are_elsewhere_cannot_be_read_and_none_may_be_given():
    X = federation(2)
    engine = greeted(X)
    with pytest.raises(InputError, match="rows that stay with their client"):
        next(engine.inputs().rows["plant-0"].blocks())
    with pytest.raises(InputError, match="expected none where the clients hold them"):
        FedGEM(engine=engine).fit(X)


def test_a_client_that_asks_is_told_what_is_wrong_but_nobody_its_values():
    answer = answers_of({"a": np.ones((3, 1))})["a"]
    seen = []
    answer.say = seen.append
    assert wire.decode(answer(b"x"), Answer).error == "Found 1 bytes, expected a message."
    told = settings_of(Client("", Rows.from_array(np.ones((1, 3))), np.ones(1), 0))
    wrong = wire.decode(
        answer(
            wire.encode(Ask(3, "a", MomentsReply(Statistics(np.ones(1), np.ones((1, 1)))), told))
        ),
        Answer,
    )
    assert (wrong.exchange, wrong.error) == (3, "it failed: TypeError")
    assert "MomentsReply" in seen[-1]


@pytest.mark.parametrize("wrong", [{"expect": 0}, {"min_clients": 0.5}, {"round_timeout": 0}])
def test_refuses_what_makes_no_sense(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        RemoteEngine(Direct({}), **wrong)


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    X, path = federation(), tmp_path / "x"

    class KilledError(Exception):
        pass

    def kill(row):
        if row.round == 4:
            raise KilledError

    def fit(**kwargs):
        engine = RemoteEngine(Direct(answers_of(X)), expect=4)
        return FedGEM(3, max_iter=2, random_state=0, engine=engine).fit(**kwargs)

    with pytest.raises(KilledError):
        fit(checkpoint=path, callbacks=[kill])
    assert_same_model(fit(checkpoint=path), fit())

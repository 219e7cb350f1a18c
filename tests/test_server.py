import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedgem.client import Client, respond
from fedgem.engines.local import LocalEngine
from fedgem.gaussian.statistics import Statistics
from fedgem.messages import ENVELOPE, Profile, TrainReply
from fedgem.rows import Rows
from fedgem.server import Components, Settings, Training, aggregate
from fedgem.superclusters import update
from strategies import rows_and_means, seeds

LOG_2_PI = np.log(2 * np.pi)


def federation(n_clients=4, n_components=3, d=2, seed=0, n_rows=60):
    rng = np.random.default_rng(seed)
    centres = 5 * rng.normal(size=(6, d))
    clients = {}
    for g in range(n_clients):
        own = centres[rng.choice(6, n_components, replace=False)]
        X = own[rng.integers(n_components, size=n_rows)] + rng.normal(size=(n_rows, d))
        name = f"plant-{g}"
        weights = np.full(n_components, 1 / n_components)
        clients[name] = Client(name, Rows.from_array(X), weights, seed)
    return clients


def states(clients, settings=None, engine=None):
    """Every state of a training, in order."""
    seen = []
    start = Training(tuple(clients), settings or Settings())
    (engine or LocalEngine(n_jobs=1)).run(start, clients, on_round=seen.append)
    return seen


def log_likelihood(client, means):
    """The local objective, straight from its definition."""
    X = np.concatenate(list(client.rows.blocks()))
    d = X.shape[1]
    squared = np.square(X[:, None] - means).sum(axis=2)
    joint = np.log(client.weights) - 0.5 * squared - 0.5 * d * LOG_2_PI
    return np.logaddexp.reduce(joint, axis=1).mean()


@settings(max_examples=60)
@given(
    st.lists(rows_and_means(), min_size=1, max_size=4),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([1.0, 0.5]),
    seeds,
)
def test_no_clients_objective_ever_falls(cases, n_steps, cannot_link, participation, seed):
    d = min(X.shape[1] for X, _ in cases)
    rng = np.random.default_rng(seed)
    clients = {}
    for g, (X, means) in enumerate(cases):
        number = min(len(means), len(X))
        weights = rng.dirichlet(np.ones(number))
        clients[str(g)] = Client(str(g), Rows.from_array(X[:, :d]), weights, seed)
    settings_ = Settings(max_iter=6, n_steps=n_steps, cannot_link=cannot_link)
    last = dict.fromkeys(clients, -np.inf)
    for state in states(clients, settings_, LocalEngine(n_jobs=1, participation=participation)):
        for name, objective in state.history[-1].objectives.items():
            assert objective >= last[name] - 1e-9 * (1 + abs(objective))
            last[name] = objective


def test_reported_objective_is_the_likelihood_at_the_means_that_were_sent():
    clients = federation()
    before, after = states(clients)[2:4]
    for name, client in clients.items():
        expected = log_likelihood(client, before.members[name].means)
        assert_allclose(after.history[-1].objectives[name], expected)


def test_algorithm_1_line_by_line():
    """T rounds with an update of the server, and one more whose maximisers are aggregated."""
    clients = federation()
    n_rounds = 3
    found = states(clients, Settings(max_iter=n_rounds))[-1]
    means = dict.fromkeys(clients)
    for t in range(n_rounds + 1):
        maximisers, radii = [], []
        for name, client in clients.items():
            X = np.concatenate(list(client.rows.blocks()))
            if t == 0:
                from fedgem.gaussian.initialisation import start

                means[name] = start(client.rows, client.weights, 1, client.seeds)[0].means
            joint = -0.5 * np.square(X[:, None] - means[name]).sum(axis=2)
            gamma = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
            maximiser = gamma.T @ X / gamma.sum(axis=0)[:, None]
            maximisers.append(maximiser)
            radii.append(np.square(maximiser - means[name]).sum(axis=1))
        if t == n_rounds:
            break
        owners = np.repeat(np.arange(4), 3)
        new, _ = update(np.concatenate(maximisers), np.concatenate(radii), owners)
        means = dict(zip(clients, np.split(new, 4), strict=True))
    assert found.finished
    assert len(found.history) == n_rounds + 1
    assert_allclose(Components.of(found).means, np.concatenate(maximisers), rtol=1e-9)


def test_bytes_are_the_papers_count_plus_the_envelope():
    """Appendix B.5: K_g (d + 1) numbers up, K_g d down."""
    n_components, d = 3, 2
    history = states(federation(n_components=n_components, d=d))[-1].history
    for row in history[1:]:
        assert set(row.bytes_up.values()) == {8 * n_components * (d + 1) + 2 * ENVELOPE}
        assert set(row.bytes_down.values()) == {8 * n_components * d + 2 * ENVELOPE}
    # On its own start a client adds the radii that only it can know, its weights and its size.
    start = 8 * n_components * (d + 3) + 3 * ENVELOPE
    assert set(history[0].bytes_up.values()) == {start}
    assert set(history[0].bytes_down.values()) == {2 * ENVELOPE}


def test_several_local_steps_send_their_radii():
    clients = federation()
    seen = states(clients, Settings(max_iter=2, n_steps=3))
    client = next(iter(clients.values()))
    reply = respond(seen[0].requests()[client.name], client)
    assert reply.squared_radii is not None
    one_by_one = seen[0].members[client.name].means
    for _ in range(2):
        request = type(seen[0].requests()[client.name])(1, 1, one_by_one)
        one_by_one = respond(request, client).statistics.means
    last = respond(type(request)(1, 1, one_by_one), client).statistics.means
    assert_allclose(reply.statistics.means, last)
    assert_allclose(reply.squared_radii, np.square(last - one_by_one).sum(axis=1), rtol=1e-6)


def test_an_absent_client_keeps_its_components():
    clients = federation()
    state = Training(tuple(clients), Settings(max_iter=5))
    replies = {name: respond(state.requests()[name], c) for name, c in clients.items()}
    state = state.advance(replies)
    present = {name: respond(state.requests()[name], clients[name]) for name in list(clients)[1:]}
    later = state.advance(present)
    absent = next(iter(clients))
    assert_array_equal(
        later.members[absent].statistics.means, state.members[absent].statistics.means
    )
    assert absent not in later.history[-1].bytes_up
    # Its new start still lies in the uncertainty set of what it last reported.
    member = later.members[absent]
    step = np.square(member.means - member.statistics.means).sum(axis=1)
    assert np.all(step <= member.squared_radii * (1 + 1e-9))


def test_a_client_that_joins_late_chooses_its_own_start_then():
    clients = federation()
    late = "plant-3"
    state = Training(tuple(clients), Settings(max_iter=5))
    for _ in range(3):
        state = state.advance(
            {n: respond(state.requests()[n], c) for n, c in clients.items() if n != late}
        )
    assert late not in state.members
    assert state.requests()[late].means is None
    state = state.advance({late: respond(state.requests()[late], clients[late])})
    assert list(state.members) == list(clients)


def test_absent_from_the_final_step():
    clients = federation()
    state = Training(tuple(clients), Settings(max_iter=1))
    state = state.advance({n: respond(state.requests()[n], c) for n, c in clients.items()})
    assert state.last
    some = list(clients)[:2]
    state = state.advance({n: respond(state.requests()[n], clients[n]) for n in some})
    assert state.finished
    assert state.requests() == {}
    assert Components.of(state).names == tuple(clients)


def test_a_round_without_replies_changes_nothing():
    clients = federation()
    state = Training(tuple(clients), Settings(max_iter=3)).advance({})
    assert state.members == {}
    assert state.history[-1].n_clusters == 0
    assert np.isnan(state.history[-1].objective)


def test_training_ends_when_nothing_moves():
    clients = federation()
    patient = states(clients, Settings(max_iter=200, tol=1e-3))
    assert patient[-1].finished
    assert len(patient) < 100
    members = patient[-1].members.values()
    spread = np.sqrt(np.concatenate([m.means for m in members]).var(axis=0).sum())
    moved = max(np.sqrt(m.squared_radii.max()) for m in members)
    assert moved < 0.05 * spread


def test_zero_rounds_aggregate_the_first_maximisers():
    clients = federation()
    start = Training(tuple(clients), Settings(max_iter=0), last=True)
    end = LocalEngine().run(start, clients)
    assert len(end.history) == 1


@pytest.mark.parametrize(("reply", "message"), [
    (TrainReply(0, 0.0, Statistics(np.ones(1), np.zeros((1, 2)))), "must carry its profile"),
    (
        TrainReply(0, 0.0, Statistics(np.ones(1), np.zeros((1, 2))), None, Profile(3, np.ones(1))),
        "must send its radii",
    ),
])  # fmt: skip
def test_first_replies_must_be_complete(reply, message):
    with pytest.raises(ValueError, match=message):
        Training(("a",), Settings()).advance({"a": reply})


def test_final_aggregation():
    components = Components(
        names=("a", "b"),
        owners=np.array([0, 0, 1, 1]),
        means=np.array([[0.0], [10.0], [12.0], [30.0]]),
        weights=np.array([0.3, 0.7, 0.5, 0.5]),
        counts=np.array([30.0, 70.0, 100.0, 100.0]),
        n_rows=np.array([100, 200]),
    )
    clusters = aggregate(components, np.array([0, 1, 1, 2]))
    # 170 rows, then 100, then 30: the largest cluster comes first.
    assert_array_equal(clusters.of_components, [2, 0, 0, 1])
    assert_allclose(clusters.means.ravel(), [11.0, 30.0, 0.0])
    assert_allclose(clusters.weights, [[0.7, 0.0, 0.3], [0.5, 0.5, 0.0]])

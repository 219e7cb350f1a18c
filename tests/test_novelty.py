import numpy as np
import pytest

from fedgem import FedGEM
from fedgem.client import Client, respond
from fedgem.datasets import make_federated_blobs, make_fleet
from fedgem.engines.local import LocalEngine
from fedgem.novelty import GRID, Calibration, counted, left_out, p_values
from fedgem.rows import Rows


def halves(clients):
    train = {name: X[: len(X) * 7 // 10] for name, X in clients.items()}
    test = np.concatenate([X[len(X) * 7 // 10 :] for X in clients.values()])
    return train, test


def test_left_out_distances_are_those_of_a_fit_without_the_row():
    X = np.random.default_rng(0).normal(size=(12, 3))
    centred = X - X.mean(axis=0)
    distances = np.einsum("nd,de,ne->n", centred, np.linalg.inv(np.cov(X.T, bias=True)), centred)
    n = np.full(12, 12.0)
    found = left_out(distances, np.ones(12), n, n)
    for i, row in enumerate(X):
        others = np.delete(X, i, axis=0)
        step = row - others.mean(axis=0)
        expected = step @ np.linalg.solve(np.cov(others.T, bias=True), step)
        np.testing.assert_allclose(found[i], expected, rtol=1e-9)


@pytest.mark.parametrize("n", [1, 3, 30, 3000])
def test_p_values_fall_with_the_score_all_the_way_to_zero(n):
    scores = np.random.default_rng(0).standard_t(2, size=n)
    p = p_values(np.linspace(-20, 40, 3001), counted(scores))
    assert (np.diff(p) <= 0).all()
    assert p[0] > 0.99
    assert p[-1] < 0.01
    assert p_values(np.array([1e3]), counted(scores))[0] < 1e-99


def test_p_values_are_shares_of_the_rows():
    scores = np.random.default_rng(0).gamma(2.0, size=100_000)
    for share in (0.001, 0.01, 0.1, 0.5, 0.9):
        p = p_values(np.quantile(scores, [1 - share]), counted(scores))[0]
        assert abs(p / share - 1) < 0.1


@pytest.mark.parametrize(
    "clients",
    [
        make_federated_blobs(n_rows=3000, random_state=0).clients,
        make_federated_blobs(n_rows=3000, condition_number=30.0, random_state=1).clients,
        make_fleet(30, random_state=0).clients,
    ],
)
@pytest.mark.parametrize("params", [{}, {"upsilon": 2.0, "n_local_components": 3}])
def test_one_in_a_hundred_rows_that_did_not_train_is_foreign(clients, params):
    train, test = halves(clients)
    model = FedGEM(random_state=0, **params).fit(train)
    p = model.novelty(test)
    assert 0.005 < (p < 0.01).mean() < 0.02
    assert 0.08 < (p < 0.1).mean() < 0.12
    assert model.novelty(test + 100 * test.std(axis=0)).max() < 1e-6


def test_few_rows_in_many_dimensions_do_not_look_foreign():
    rng = np.random.default_rng(0)
    model = FedGEM(random_state=0).fit([rng.normal(size=(200, 40)) for _ in range(2)])
    assert 0.003 < (model.novelty(rng.normal(size=(4000, 40))) < 0.01).mean() < 0.04


@pytest.mark.parametrize("upsilon", [None, 2.0])
def test_scaling_and_units_change_nothing(upsilon):
    clients, test = halves(make_fleet(random_state=0).clients)
    params = {"upsilon": upsilon, "n_local_components": 3, "scale": True, "random_state": 0}
    units = np.logspace(-4, 4, test.shape[1])
    model = FedGEM(**params).fit(clients)
    other = FedGEM(**params).fit({name: X * units + 7 for name, X in clients.items()})
    np.testing.assert_allclose(model.novelty(test), other.novelty(test * units + 7), atol=1e-6)


def test_only_counts_leave_a_client():
    sent = []

    class Listening(LocalEngine):
        def run(self, state, clients, **kwargs):
            for name, request in state.requests().items():
                if type(request).__name__ == "NoveltyRequest":
                    sent.append(respond(request, clients[name]))
            return super().run(state, clients, **kwargs)

    clients = make_federated_blobs(random_state=0).clients
    model = FedGEM(engine=Listening(), random_state=0).fit(clients)
    assert [reply.counts.sum() for reply in sent] == [500] * 5
    assert all(set(vars(reply)) == {"counts"} for reply in sent)
    np.testing.assert_array_equal(sum(reply.counts for reply in sent), model.calibration_)
    assert model.calibration_.shape == (len(GRID) - 1,)


def test_novelty_survives_a_file(tmp_path):
    clients, test = halves(make_fleet(random_state=0).clients)
    model = FedGEM(random_state=0).fit(clients)
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(
        FedGEM.load(tmp_path / "model.npz").novelty(test), model.novelty(test)
    )


def test_rows_are_checked():
    model = FedGEM(random_state=0).fit(make_fleet(random_state=0).clients)
    with pytest.raises(ValueError, match="expecting 10 features"):
        model.novelty(np.zeros((2, 3)))


def test_a_client_counts_by_blocks():
    rows = np.random.default_rng(0).normal(size=(700, 2))
    model = FedGEM(random_state=0).fit([rows])
    request = Calibration.of(model.mixture_, {"0": model.weights_[0]}, np.array([700.0])).asked["0"]
    split = Rows((700, 2), rows.dtype, lambda: iter(np.array_split(rows, 7)))
    whole = respond(request, Client("0", Rows.from_array(rows), np.ones(1), 0))
    np.testing.assert_array_equal(
        respond(request, Client("0", split, np.ones(1), 0)).counts, whole.counts
    )

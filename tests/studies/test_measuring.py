from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, silhouette_score

from fedgem.studies.cases import BALANCES, draw_blobs, sized
from fedgem.studies.measuring import Task, measure, scores


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(n, 2)) for name, n in (("a", 20), ("b", 30))}
    truth = {name: rng.integers(3, size=len(X)) for name, X in rows.items()}
    found = {name: rng.integers(2, size=len(X)) for name, X in rows.items()}
    scored = scores(found, truth, rows)
    local = [adjusted_rand_score(truth[g], found[g]) for g in "ab"]
    assert scored["ari_local"] == pytest.approx(np.mean(local))
    everyone = [np.concatenate([part["a"], part["b"]]) for part in (rows, truth, found)]
    assert scored["ari_global"] == pytest.approx(adjusted_rand_score(*everyone[1:]))
    assert scored["silhouette_global"] == pytest.approx(silhouette_score(everyone[0], everyone[2]))


def test_one_cluster_has_a_silhouette_of_zero():
    nothing = {"a": np.zeros(5, int)}
    assert scores(nothing, nothing, {"a": np.eye(5)})["silhouette_local"] == 0


@pytest.mark.parametrize("balance", BALANCES)
def test_blobs_have_the_papers_numbers_of_rows(balance):
    how = {"n_clients": 5, "n_train": 2500, "n_test": 5000, "min_distance": 4.0}
    split = draw_blobs(0, balance=balance, **how)
    sizes = [len(X) for X in split.train.values()]
    assert sizes == ([1000, 600, 400, 400, 100] if balance == "client imbalance" else [500] * 5)
    assert sum(len(X) for X in split.test.values()) == 5000
    for name, labels in split.test_labels.items():
        assert len(labels) == len(split.test[name])
    shares = [np.bincount(y)[np.unique(y)] for y in split.train_labels.values()]
    uneven = any(s.max() > 2 * s.min() for s in shares[:1])
    assert uneven == (balance == "cluster imbalance")


def test_sizes_are_those_that_are_asked_for():
    case = sized("clients", 3.0, n_clients=3, n_train=90, n_clusters=5, n_features=6)
    split = case.draw(0, None)
    assert [X.shape for X in split.train.values()] == [(30, 6)] * 3
    assert split.memberships.shape == (3, 5)


def test_all_methods_take_the_rounds_of_the_case():
    case = sized("clients", 3.0, n_clients=3, n_train=90, n_clusters=4)
    for method in ("FedGEM, paper", "FedKmeans"):
        row = measure(Task(case, method, 0))
        assert row["error"] is None
        assert row["n_rounds"] == 11  # and one to begin or to end
    fewer = measure(Task(replace(case, max_iter=3), "FedKmeans", 0))
    assert fewer["n_rounds"] == 4

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedgem import LocalEngine
from fedgem.baselines import METHODS, Method

OURS = {name: entry for name, entry in METHODS.items() if isinstance(entry.make(), Method)}
CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
CLIENTS = {
    "copies": np.repeat(CENTRES[:2], 6, axis=0),
    "one row": CENTRES[2:],
    "noisy": np.repeat(CENTRES, 8, axis=0) + np.random.default_rng(0).normal(size=(24, 2)),
    "copy": np.repeat(CENTRES[:1], 5, axis=0),
}
HELD = {"copies": 2, "one row": 1, "noisy": 3, "copy": 1}


def fit(entry, engine=None):
    model = entry.informed(n_clusters=3, n_local_components=HELD, engine=engine, random_state=0)
    return model.fit(CLIENTS)


@parametrize_with_checks([entry.make() for entry in OURS.values()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("entry", OURS.values(), ids=OURS)
def test_copies_and_single_rows_are_clients_too(entry):
    model = fit(entry)
    assert np.isfinite(model.means_).all()
    assert [len(labels) for labels in model.labels_] == [12, 1, 24, 5]
    assert max(labels.max() for labels in model.labels_) < model.n_clusters_


@pytest.mark.parametrize("entry", OURS.values(), ids=OURS)
def test_the_number_of_threads_does_not_matter_and_clients_may_be_missing(entry):
    if not entry.is_federated:
        pytest.skip("no clients to miss")
    models = [fit(entry, LocalEngine(n_jobs, participation=0.5)) for n_jobs in (1, 3)]
    np.testing.assert_array_equal(models[0].means_, models[1].means_)
    assert all(len(round_.bytes_up) <= 2 for round_ in models[0].history_)
    labels = [model.predict(CLIENTS["noisy"], client="noisy") for model in models]
    np.testing.assert_array_equal(*labels)

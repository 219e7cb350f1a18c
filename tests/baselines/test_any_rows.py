import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedgem import LocalEngine
from fedgem.baselines.cmeans import FederatedCMeans
from fedgem.baselines.dual_decomposition import DualDecomposition
from fedgem.baselines.fedem import FedEM

from ..strategies import small_federations

MODELS = [
    FedEM(3, max_iter=5),
    FederatedCMeans(3, fuzziness=1.0, max_iter=5),
    FederatedCMeans(3, max_iter=5),
    DualDecomposition(3, max_iter=5),
]


@settings(max_examples=60)
@given(small_federations(), st.sampled_from(MODELS), st.sampled_from([0.5, 1.0]))
def test_any_rows_can_be_fitted(drawn, model, participation):
    clients, _, _ = drawn
    model.set_params(engine=LocalEngine(participation=participation), random_state=0).fit(clients)
    assert 1 <= len(model.means_) <= 3
    assert np.isfinite(model.means_).all()
    assert [len(labels) for labels in model.labels_] == [len(X) for X in clients.values()]
    assert all(0 <= label < len(model.means_) for labels in model.labels_ for label in labels)


@pytest.mark.parametrize("model", MODELS)
def test_the_number_of_threads_changes_nothing(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 5)) * np.arange(1, 6)
    one, two = (
        model.set_params(engine=LocalEngine(n_jobs=n), random_state=0)
        .fit(X, clients=np.arange(60_000) % 7 // 3)
        .means_.copy()
        for n in (1, 3)
    )
    assert_array_equal(one, two)

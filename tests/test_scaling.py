import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

from fedgem import FederatedScaler, LocalEngine
from strategies import seeds


@st.composite
def splits(draw):
    """Pooled rows far from the origin or near it, and the client of each."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(2, 60)), draw(st.integers(1, 5))
    offset = draw(st.sampled_from([0.0, -3.0, 1e4, 1e8]))
    X = rng.normal(offset, 10.0 ** rng.integers(-1, 3, size=d), size=(n, d))
    return X, rng.integers(draw(st.integers(1, n)), size=n)


@given(splits())
def test_is_the_scaler_of_all_rows_together(split):
    X, ids = split
    ours, pooled = FederatedScaler().fit(X, clients=ids), StandardScaler().fit(X)
    assert_allclose(ours.mean_, pooled.mean_, rtol=1e-13, atol=1e-13)
    exact = X.std(axis=0, dtype=np.longdouble).astype(float)
    # A mean cannot be closer than rounding at its distance from the origin allows.
    assert (np.abs(ours.scale_ - exact) <= 1e-12 * exact + 1e-15 * np.abs(pooled.mean_)).all()
    assert_allclose(ours.transform(X), pooled.transform(X), rtol=1e-6, atol=1e-6)
    assert_allclose(ours.inverse_transform(ours.transform(X)), X, rtol=1e-12)


@given(splits(), st.integers(2, 4))
def test_bits_do_not_depend_on_threads(split, n_jobs):
    X, ids = split
    one = FederatedScaler(engine=LocalEngine(n_jobs=1)).fit(X, clients=ids)
    many = FederatedScaler(engine=LocalEngine(n_jobs=n_jobs)).fit(X, clients=ids)
    assert_array_equal(one.mean_, many.mean_)
    assert_array_equal(one.scale_, many.scale_)


def test_a_single_row_is_its_own_mean_and_has_no_scale():
    scaler = FederatedScaler().fit({"plant": [[3.0, -4.0]]})
    assert_array_equal(scaler.mean_, [3.0, -4.0])
    assert_array_equal(scaler.scale_, [1.0, 1.0])
    assert_array_equal(scaler.transform([[3.0, -3.0]]), [[0.0, 1.0]])


@pytest.mark.parametrize("value", [0.1, -3.3, 1e8 + 0.1, 0.0])
@pytest.mark.parametrize("sizes", [(3, 1, 7), (10_000, 30_000)])
def test_constant_columns_have_scale_one(value, sizes):
    clients = [np.full((n, 2), [value, 0.0]) for n in sizes]
    for X in clients:
        X[:, 1] = np.arange(len(X))
    scaler = FederatedScaler().fit(clients)
    assert scaler.scale_[0] == 1
    assert scaler.scale_[1] > 1
    assert_allclose(scaler.transform(clients[0])[:, 0], 0, atol=1e-4)


def test_float32_stays_float32():
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    scaler = FederatedScaler().fit([X, X])
    assert {scaler.mean_.dtype, scaler.scale_.dtype, scaler.transform(X).dtype} == {X.dtype}

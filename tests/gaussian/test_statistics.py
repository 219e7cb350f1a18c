import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedgem.gaussian.statistics import Statistics, row_statistics
from strategies import rows_and_means, seeds


def weighted(X, gamma, form):
    """Statistics by their definition: all rows at once, about the components' own means."""
    counts = gamma.sum(axis=0)
    share = gamma / np.where(counts > 0, counts, 1)
    means = share.T @ X
    offsets = X[:, None] - means
    covariances = {
        "full": lambda: np.einsum("nk,nki,nkj->kij", share, offsets, offsets),
        "pooled": lambda: np.einsum("nk,nki,nkj->ij", gamma, offsets, offsets)[None] / gamma.sum(),
        "diag": lambda: np.einsum("nk,nki->ki", share, offsets**2),
        "spherical": lambda: np.einsum("nk,nki->k", share, offsets**2) / X.shape[1],
        "none": lambda: None,
    }[form]()
    return Statistics(counts, means, covariances, gamma.T @ gamma)


@pytest.mark.parametrize("form", ["full", "pooled", "diag", "spherical", "none"])
@given(seed=seeds, n_components=st.integers(1, 4), offset=st.sampled_from([0.0, 1e4]))
def test_statistics_of_two_blocks_add_up_to_those_of_all_rows(form, seed, n_components, offset):
    rng = np.random.default_rng(seed)
    n, d = rng.integers(2, 30), rng.integers(1, 5)
    X = rng.normal(size=(n, d)) + offset
    gamma = rng.dirichlet(np.full(n_components, 0.3), size=n)
    cut = rng.integers(1, n)
    total = weighted(X[:cut], gamma[:cut], form) + weighted(X[cut:], gamma[cut:], form)
    whole = weighted(X, gamma, form)
    assert_allclose(total.counts, whole.counts)
    assert_allclose(total.means, whole.means, rtol=1e-9)
    assert_allclose(total.overlap, whole.overlap)
    if form == "none":
        assert total.covariances is None
    else:
        assert_allclose(total.covariances, whole.covariances, rtol=1e-9, atol=1e-9)


@given(rows_and_means())
def test_statistics_of_rows_add_up(case):
    X, _ = case
    cut = len(X) // 3
    if cut == 0:
        return
    total = row_statistics(X[:cut]) + row_statistics(X[cut:])
    whole = row_statistics(X)
    scale = X.std() + 1e-12 * np.abs(X).max()
    assert_allclose(total.counts, whole.counts)
    assert_allclose(total.means, whole.means, atol=1e-9 * scale + 1e-300)
    assert_allclose(total.covariances, whole.covariances, rtol=1e-6, atol=1e-9 * scale**2)


def test_adding_nothing_changes_nothing():
    some = Statistics(np.array([2.0]), np.array([[3.0]]), np.array([[5.0]]))
    none = Statistics(np.array([0.0]), np.array([[0.0]]), np.array([[1.0]]))
    assert_array_equal((some + none).means, [[3.0]])
    assert_array_equal((some + none).covariances, [[5.0]])
    assert_array_equal((none + some).covariances, [[5.0]])
    assert_array_equal((none + none).counts, [0.0])


def test_what_one_side_lacks_the_sum_lacks():
    some = Statistics(np.array([2.0]), np.array([[3.0]]), np.array([[5.0]]))
    assert (some + Statistics(np.array([1.0]), np.array([[3.0]]))).covariances is None

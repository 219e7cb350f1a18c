from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from fedgem import rows as rows_module
from fedgem.gaussian.density import log_joint
from fedgem.gaussian.estep import e_step
from fedgem.gaussian.statistics import Statistics, row_statistics
from fedgem.rows import Rows
from strategies import rows_and_means


@given(rows_and_means())
def test_kernel_agrees_with_the_definition(case):
    X, means = case
    log_weights = np.log(np.arange(1.0, len(means) + 1) / np.arange(1, len(means) + 1).sum())
    statistics, likelihood = e_step(Rows.from_array(X), means, log_weights)
    joint = log_joint(X, means, log_weights)
    total = logsumexp(joint, axis=1, keepdims=True)
    gamma = np.exp(joint - total)
    assert_allclose(statistics.counts, gamma.sum(axis=0), rtol=1e-9, atol=1e-9)
    assert_allclose(likelihood, total.sum(), rtol=1e-10, atol=1e-9)
    steps = np.einsum("nk,nkd->kd", gamma, X[:, None] - means)
    found = (statistics.means - means) * statistics.counts[:, None]
    assert_allclose(found, steps, rtol=1e-8, atol=1e-9 * (1 + np.abs(X).max()))


@pytest.mark.parametrize("n_components", [1, 2, 7, 8, 9, 33])
@pytest.mark.parametrize("n_features", [1, 3, 4, 5, 21])
def test_padding_is_invisible(n_components, n_features):
    rng = np.random.default_rng(0)
    X, means = rng.normal(size=(101, n_features)), rng.normal(size=(n_components, n_features))
    statistics, _ = e_step(Rows.from_array(X), means, np.zeros(n_components))
    assert statistics.means.shape == means.shape
    assert_allclose(statistics.counts.sum(), 101)
    assert_allclose(statistics.counts @ statistics.means, X.sum(axis=0), atol=1e-10)


def test_a_component_without_weight_or_rows_stays_where_it_is():
    X = np.zeros((4, 2))
    means = np.array([[0.0, 0.0], [1e4, 0.0], [1.0, 1.0]])
    statistics, _ = e_step(Rows.from_array(X), means, np.log([0.5, 0.5, 1e-300]))
    assert statistics.counts[1] == 0
    assert_array_equal(statistics.means[1], means[1])


def test_rows_far_from_every_mean_still_have_responsibilities():
    statistics, likelihood = e_step(
        Rows.from_array(np.array([[1e6]])), np.array([[0.0], [1.0]]), np.zeros(2)
    )
    assert_allclose(statistics.counts, [0, 1])
    assert np.isfinite(likelihood)


def test_precision_far_from_the_origin():
    rng = np.random.default_rng(0)
    near = np.round(rng.normal(size=(500, 2)) * 2**10) / 2**10  # exact after the shift
    means = np.array([[-1.0, 0.0], [1.0, 0.0]])
    here, _ = e_step(Rows.from_array(near), means, np.zeros(2))
    there, _ = e_step(Rows.from_array(near + 2.0**30), means + 2.0**30, np.zeros(2))
    assert_allclose(there.means - 2.0**30, here.means, atol=2.0**-20)


def test_same_bits_on_any_number_of_threads_and_block_reader(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 2**12)
    rng = np.random.default_rng(0)
    X, means = rng.normal(size=(5000, 3)), rng.normal(size=(5, 3))
    alone = e_step(Rows.from_array(X), means, np.zeros(5))
    for n_threads in (1, 2, 5):
        with ThreadPoolExecutor(n_threads) as pool:
            together = e_step(Rows.from_array(X), means, np.zeros(5), pool)
        assert_array_equal(together[0].means, alone[0].means)
        assert_array_equal(together[0].counts, alone[0].counts)
        assert together[1] == alone[1]


def test_float32_rows_are_computed_in_float64():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    means = rng.normal(size=(3, 4))
    single, _ = e_step(Rows.from_array(X), means, np.zeros(3))
    double, _ = e_step(Rows.from_array(X.astype(np.float64)), means, np.zeros(3))
    assert_array_equal(single.means, double.means)


@given(rows_and_means())
def test_statistics_add_up(case):
    X, _ = case
    cut = len(X) // 3
    if cut == 0:
        return
    total = row_statistics(X[:cut]) + row_statistics(X[cut:])
    whole = row_statistics(X)
    scale = X.std() + 1e-12 * np.abs(X).max()
    assert_allclose(total.counts, whole.counts)
    assert_allclose(total.means, whole.means, atol=1e-9 * scale + 1e-300)
    assert_allclose(total.variances, whole.variances, rtol=1e-6, atol=1e-9 * scale**2)


def test_adding_nothing_changes_nothing():
    some = Statistics(np.array([2.0]), np.array([[3.0]]))
    none = Statistics(np.array([0.0]), np.array([[0.0]]))
    assert_array_equal((some + none).means, [[3.0]])
    assert_array_equal((none + none).counts, [0.0])

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from fedgem import rows as rows_module
from fedgem.gaussian.covariances import Gaussians, matrices
from fedgem.gaussian.density import log_joint
from fedgem.gaussian.estep import e_step, e_steps
from fedgem.gaussian.statistics import Statistics
from fedgem.rows import Rows
from strategies import COVARIANCE_TYPES, covariances_of_type, rows_and_means


@given(rows_and_means())
def test_kernel_agrees_with_the_definition(case):
    X, means = case
    log_weights = np.log(np.arange(1.0, len(means) + 1) / np.arange(1, len(means) + 1).sum())
    statistics, likelihood = e_step(Rows.from_array(X), Gaussians(means), log_weights)
    joint = log_joint(X, Gaussians(means), log_weights)
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
    statistics, _ = e_step(Rows.from_array(X), Gaussians(means), np.zeros(n_components))
    assert statistics.means.shape == means.shape
    assert_allclose(statistics.counts.sum(), 101)
    assert_allclose(statistics.counts @ statistics.means, X.sum(axis=0), atol=1e-10)


def test_a_component_without_weight_or_rows_stays_where_it_is():
    X = np.zeros((4, 2))
    means = np.array([[0.0, 0.0], [1e4, 0.0], [1.0, 1.0]])
    statistics, _ = e_step(Rows.from_array(X), Gaussians(means), np.log([0.5, 0.5, 1e-300]))
    assert statistics.counts[1] == 0
    assert_array_equal(statistics.means[1], means[1])


def test_rows_far_from_every_mean_still_have_responsibilities():
    statistics, likelihood = e_step(
        Rows.from_array(np.array([[1e6]])), Gaussians(np.array([[0.0], [1.0]])), np.zeros(2)
    )
    assert_allclose(statistics.counts, [0, 1])
    assert np.isfinite(likelihood)


def test_precision_far_from_the_origin():
    rng = np.random.default_rng(0)
    near = np.round(rng.normal(size=(500, 2)) * 2**10) / 2**10  # exact after the shift
    means = np.array([[-1.0, 0.0], [1.0, 0.0]])
    here, _ = e_step(Rows.from_array(near), Gaussians(means), np.zeros(2))
    there, _ = e_step(Rows.from_array(near + 2.0**30), Gaussians(means + 2.0**30), np.zeros(2))
    assert_allclose(there.means - 2.0**30, here.means, atol=2.0**-20)


def test_same_bits_on_any_number_of_threads_and_block_reader(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 2**12)
    rng = np.random.default_rng(0)
    X, means = rng.normal(size=(5000, 3)), rng.normal(size=(5, 3))
    alone = e_step(Rows.from_array(X), Gaussians(means), np.zeros(5))
    for n_threads in (1, 2, 5):
        with ThreadPoolExecutor(n_threads) as pool:
            together = e_step(Rows.from_array(X), Gaussians(means), np.zeros(5), pool)
        assert_array_equal(together[0].means, alone[0].means)
        assert_array_equal(together[0].counts, alone[0].counts)
        assert together[1] == alone[1]


def test_float32_rows_are_computed_in_float64():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    means = rng.normal(size=(3, 4))
    single, _ = e_step(Rows.from_array(X), Gaussians(means), np.zeros(3))
    double, _ = e_step(Rows.from_array(X.astype(np.float64)), Gaussians(means), np.zeros(3))
    assert_array_equal(single.means, double.means)


def straightforward(X, components, log_weights):
    """Run the E-step by its definition, differences first, everything in memory."""
    X = np.asarray(X, np.float64)
    joint = log_joint(X, components, log_weights)
    total = logsumexp(joint, axis=1, keepdims=True)
    gamma = np.exp(joint - total)
    counts = gamma.sum(axis=0)
    steps = [
        g @ (X - mean) / n for g, mean, n in zip(gamma.T, components.means, counts, strict=True)
    ]
    means = components.means + np.array(steps)
    covariances = np.empty((len(means), X.shape[1], X.shape[1]))
    for k, (mean, step) in enumerate(zip(components.means, steps, strict=True)):
        offsets = X - mean - step
        covariances[k] = (offsets.T * gamma[:, k]) @ offsets / counts[k]
    form = {
        "full": lambda: covariances,
        "tied": lambda: np.einsum("k,kij->ij", counts, covariances)[None] / counts.sum(),
        "diag": lambda: np.einsum("kii->ki", covariances),
        "spherical": lambda: np.einsum("kii->k", covariances) / X.shape[1],
        "identity": lambda: None,
    }[components.covariance_type]
    return Statistics(counts, means, form(), gamma.T @ gamma), total.sum()


def assert_same(found, expected, scale=1.0, rtol=1e-6):
    """Compare statistics to `rtol`, off-diagonals relative to the variances they stand beside."""
    (found, found_likelihood), (expected, expected_likelihood) = found, expected
    assert_allclose(found_likelihood, expected_likelihood, rtol=1e-9)
    assert_allclose(found.counts, expected.counts, rtol=rtol, atol=1e-9)
    assert_allclose(found.means / scale, expected.means / scale, rtol=rtol, atol=rtol)
    if expected.covariances is None:
        assert found.covariances is None
    elif expected.covariances.ndim == 3:
        spread = np.sqrt(np.einsum("kii->ki", expected.covariances))
        unit = spread[:, :, None] * spread[:, None, :]
        assert_allclose(found.covariances / unit, expected.covariances / unit, atol=rtol)
    else:
        assert_allclose(found.covariances, expected.covariances, rtol=rtol)


def mixture(covariance_type, n=700, k=4, d=3, seed=0, spread=3.0):
    """Rows of a mixture, and components near those that they come from."""
    rng = np.random.default_rng(seed)
    means = spread * rng.normal(size=(k, d))
    covariances = covariances_of_type(covariance_type, k, d, rng)
    factors = np.linalg.cholesky(matrices(Gaussians(means, covariances, covariance_type)))
    labels = rng.integers(k, size=n)
    X = means[labels] + np.einsum("nij,nj->ni", factors[labels], rng.normal(size=(n, d)))
    return X, Gaussians(means + 0.2 * rng.normal(size=(k, d)), covariances, covariance_type)


def log_weights_of(components):
    weights = np.arange(1.0, len(components.means) + 1)
    return np.log(weights / weights.sum())


def transformed(X, components, matrix, shift):
    """Map rows and full components by x -> matrix x + shift."""
    covariances = matrix @ components.covariances @ matrix.T
    means = components.means @ matrix.T + shift
    covariances = (covariances + covariances.transpose(0, 2, 1)) / 2
    return X @ matrix.T + shift, Gaussians(means, covariances, "full")


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize(("k", "d"), [(1, 1), (4, 3), (9, 1), (3, 17), (3, 45), (2, 130)])
def test_every_type_agrees_with_the_definition(covariance_type, k, d):
    X, components = mixture(covariance_type, k=k, d=d)
    weights = log_weights_of(components)
    found = e_step(Rows.from_array(X), components, weights, overlap=True)
    expected = straightforward(X, components, weights)
    assert_same(found, expected, rtol=1e-8)
    assert_allclose(found[0].overlap, expected[0].overlap, rtol=1e-8, atol=1e-8)


@given(seed=st.integers(0, 2**32 - 1), covariance_type=st.sampled_from(COVARIANCE_TYPES))
def test_any_mixture_agrees_with_the_definition(seed, covariance_type):
    rng = np.random.default_rng(seed)
    X, components = mixture(
        covariance_type,
        n=int(rng.integers(20, 200)),
        k=int(rng.integers(1, 6)),
        d=int(rng.integers(1, 8)),
        seed=seed,
        spread=10.0 ** rng.integers(-1, 5),
    )
    weights = log_weights_of(components)
    assert_same(
        e_step(Rows.from_array(X), components, weights), straightforward(X, components, weights)
    )


def test_badly_scaled_features():
    X, components = mixture("full", d=5)
    scale = 10.0 ** np.array([-6, -3, 0, 3, 6])
    X, components = transformed(X, components, np.diag(scale), 0.0)
    weights = log_weights_of(components)
    assert_same(
        e_step(Rows.from_array(X), components, weights),
        straightforward(X, components, weights),
        scale,
    )


@pytest.mark.parametrize("together", [True, False])
def test_covariances_of_condition_1e8(together):
    rng = np.random.default_rng(0)
    X, components = mixture("full", d=4)
    axes = np.diag([1e-4, 1e-2, 1.0, 1.0])
    if together:  # one direction is thin for all components
        rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        X, components = transformed(X, components, rotation @ axes, 0.0)
    else:  # each component has a thin direction of its own
        labels = log_joint(X, components, np.zeros(4)).argmax(axis=1)
        covariances = components.covariances.copy()
        for k in range(4):
            thin = np.linalg.qr(rng.normal(size=(4, 4)))[0] @ axes
            X[labels == k] = (X[labels == k] - components.means[k]) @ thin.T + components.means[k]
            covariances[k] = thin @ covariances[k] @ thin.T
            covariances[k] = (covariances[k] + covariances[k].T) / 2
        components = Gaussians(components.means, covariances, "full")
    assert np.linalg.cond(components.covariances).max() > 1e8
    weights = log_weights_of(components)
    assert_same(
        e_step(Rows.from_array(X), components, weights), straightforward(X, components, weights)
    )


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_data_far_from_the_origin(covariance_type):
    X, components = mixture(covariance_type)
    X = X + 1e6
    components = Gaussians(components.means + 1e6, components.covariances, covariance_type)
    weights = log_weights_of(components)
    found = e_step(Rows.from_array(X), components, weights)
    assert_same(found, straightforward(X, components, weights))
    here = e_step(Rows.from_array(X - 1e6), components_at(components, -1e6), weights)
    assert_allclose(found[0].means - 1e6, here[0].means, atol=1e-8)


def components_at(components, shift):
    return Gaussians(components.means + shift, components.covariances, components.covariance_type)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("size", [1e-3, 1e-6])
def test_a_tiny_cluster_beside_large_ones(covariance_type, size):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 3)), [20, 0, 0] + size * rng.normal(size=(20, 3))])
    means = np.array([[0.1, 0.0, 0.0], [19.9, 0.1, 0.0]])
    covariances = covariances_of_type(covariance_type, 2, 3, rng)
    components = Gaussians(means, covariances, covariance_type)
    weights = np.log([0.9, 0.1])
    assert_same(
        e_step(Rows.from_array(X), components, weights), straightforward(X, components, weights)
    )


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_what_starts_wide_and_collapses_is_computed_again(covariance_type):
    rng = np.random.default_rng(0)
    X = np.concatenate([size + 1e-7 * rng.normal(size=(30, 2)) for size in (0.0, 1e3)])
    covariances = covariances_of_type(covariance_type, 2, 2, rng)
    components = Gaussians(np.array([[10.0, 0.0], [1e3, 990.0]]), covariances, covariance_type)
    found, _ = e_step(Rows.from_array(X), components, np.log([0.5, 0.5]))
    assert_same((found, 1.0), (straightforward(X, components, np.zeros(2))[0], 1.0), rtol=1e-6)


def test_a_far_row_does_not_blur_thin_components():
    covariances = np.array([[[1.0, 0.99999], [0.99999, 1.0]], [[1.0, -0.9], [-0.9, 1.0]]])
    components = Gaussians(np.array([[0.0, 0.0], [1.0, 0.0]]), covariances, "full")
    X = np.array([[1e6, 1e6], [2e6, 2e6 + 1e-3], [0.5, 0.5]])
    found = e_step(Rows.from_array(X), components, np.zeros(2))
    expected = straightforward(X, components, np.zeros(2))
    assert_allclose(found[0].counts, expected[0].counts, rtol=1e-6)
    assert_allclose(found[1], expected[1], rtol=1e-9)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_a_covariance_of_no_distribution_is_refused(covariance_type):
    X, components = mixture(covariance_type)
    components = Gaussians(components.means, -components.covariances, covariance_type)
    with pytest.raises(ValueError, match="component 0 is not positive definite"):
        e_step(Rows.from_array(X), components, np.zeros(4))


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_rows_far_from_every_component_give_numbers(covariance_type):
    _, components = mixture(covariance_type)
    X = np.array([[1e9, -1e9, 0.0], [0.0, 1e9, 1e-9], [0.0, 0.0, 0.0]])
    weights = log_weights_of(components)
    found = e_step(Rows.from_array(X), components, weights)
    assert np.isfinite(found[1])
    assert_allclose(found[0].counts.sum(), 3)
    if components.covariances is not None:
        assert np.isfinite(found[0].covariances).all()
    assert_allclose(found[1], straightforward(X, components, weights)[1])


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_a_component_without_rows_stays_as_it_is(covariance_type):
    X, components = mixture(covariance_type)
    means = components.means.copy()
    means[1] = 1e5
    components = Gaussians(means, components.covariances, covariance_type)
    statistics, _ = e_step(Rows.from_array(X), components, log_weights_of(components))
    assert statistics.counts[1] == 0
    assert_array_equal(statistics.means[1], means[1])
    assert_array_equal(statistics.covariances[1], components.covariances[1])


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_components_of_no_weight_answer_for_nothing(covariance_type):
    X, components = mixture(covariance_type)
    weights = np.append(np.log(np.full(3, 1 / 3)), -np.inf)
    statistics, likelihood = e_step(Rows.from_array(X), components, weights)
    assert statistics.counts[3] == 0
    assert np.isfinite(likelihood)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_every_type_has_the_same_bits_on_any_number_of_threads(covariance_type, monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 2**12)
    X, components = mixture(covariance_type, n=5000)
    weights = log_weights_of(components)
    alone = e_step(Rows.from_array(X), components, weights, overlap=True)
    for n_threads in (1, 2, 5):
        with ThreadPoolExecutor(n_threads) as pool:
            together = e_step(Rows.from_array(X), components, weights, pool, overlap=True)
        assert together[1] == alone[1]
        assert_array_equal(together[0].means, alone[0].means)
        assert_array_equal(together[0].overlap, alone[0].overlap)
        if components.covariances is not None:
            assert_array_equal(together[0].covariances, alone[0].covariances)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_mixtures_side_by_side_are_what_each_is_alone(covariance_type, overlap):
    rng = np.random.default_rng(0)
    rows = Rows.from_array(rng.normal(size=(100, 3)))
    mixtures = []
    for size, width in ((1, 1.0), (9, 1e-5), (4, 3.0)):  # the second is too narrow to be expanded
        covariances = covariances_of_type(covariance_type, size, 3, rng)
        if covariances is not None:
            covariances = width * covariances
        means = rng.normal(size=(size, 3))
        log_weights = np.log(rng.dirichlet(np.ones(size)))
        mixtures.append((Gaussians(means, covariances, covariance_type), log_weights))
    together = e_steps(rows, mixtures, overlap=overlap)
    for (found, likelihood), mixture in zip(together, mixtures, strict=True):
        expected, alone = e_step(rows, *mixture, overlap=overlap)
        assert_allclose(likelihood, alone, rtol=1e-10)
        for name, value in vars(expected).items():
            if value is None:
                assert getattr(found, name) is None
            else:
                assert_allclose(getattr(found, name), value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_float32_rows_of_every_type_are_computed_in_float64(covariance_type):
    X, components = mixture(covariance_type)
    X = X.astype(np.float32)
    single, _ = e_step(Rows.from_array(X), components, np.zeros(4))
    double, _ = e_step(Rows.from_array(X.astype(np.float64)), components, np.zeros(4))
    assert_array_equal(single.means, double.means)
    if components.covariances is not None:
        assert_array_equal(single.covariances, double.covariances)

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose

from fedgem.gaussian.covariances import Gaussians
from fedgem.uncertainty import squared_radii, squared_radius_by_bisection
from strategies import rows_and_means


def problem(seed, n=40, d=3):
    """Rows, responsibilities, their maximiser and a previous mean."""
    rng = np.random.default_rng(seed)
    X, gamma, previous = rng.normal(size=(n, d)), rng.random(n), rng.normal(size=d)
    return X, gamma, gamma @ X / gamma.sum(), previous


def objective(X, gamma, mean):
    return -0.5 * gamma @ np.square(X - mean).sum(axis=1)


@pytest.mark.parametrize("seed", range(5))
def test_closed_form_is_the_largest_radius_whose_worst_mean_is_no_worse(seed):
    X, gamma, maximiser, previous = problem(seed)
    radius = np.sqrt(squared_radii(maximiser[None], Gaussians(previous[None]))[0])
    directions = np.random.default_rng(seed).normal(size=(2000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def worst(r):
        return min(objective(X, gamma, maximiser + r * u) for u in directions)

    floor = objective(X, gamma, previous)
    assert worst(radius * (1 - 1e-9)) >= floor
    assert worst(radius * (1 + 1e-6)) < floor


@pytest.mark.parametrize("seed", range(3))
def test_closed_form_agrees_with_the_semidefinite_dual(seed):
    """The S-lemma makes the radius problem (eq. rad_prob) a semidefinite programme."""
    X, gamma, maximiser, previous = problem(seed)
    d = len(maximiser)
    count = gamma.sum()
    radius, alpha = cp.Variable(), cp.Variable(nonneg=True)
    # For every step s from the maximiser: |s|^2 <= epsilon  implies  Gamma |s|^2 <= W - V,
    # that is (W - V) - Gamma |s|^2 - alpha (epsilon - |s|^2) >= 0; alpha = Gamma is the least.
    slack = objective(X, gamma, maximiser) - objective(X, gamma, previous)
    corner = cp.reshape(2 * slack - radius * count, (1, 1), order="C")
    certificate = cp.bmat([[(alpha - count) * np.eye(d), np.zeros((d, 1))],
                           [np.zeros((1, d)), corner]])  # fmt: skip
    programme = cp.Problem(cp.Maximize(radius), [certificate >> 0, alpha == count])
    programme.solve(solver=cp.CLARABEL)
    assert_allclose(
        squared_radii(maximiser[None], Gaussians(previous[None]))[0], radius.value, rtol=1e-5
    )


@pytest.mark.parametrize("n_iter", [1, 10, 40])
def test_bisection_agrees_to_its_tolerance(n_iter):
    for seed in range(10):
        X, gamma, maximiser, previous = problem(seed)
        exact = squared_radii(maximiser[None], Gaussians(previous[None]))[0]
        found = squared_radius_by_bisection(X, gamma, maximiser, previous, n_iter=n_iter)
        assert exact * (1 - 2.0**-n_iter - 1e-9) <= found <= exact


@given(rows_and_means())
def test_bisection_agrees_on_any_data(case):
    X, means = case
    gamma = np.linspace(0.1, 1.0, len(X))
    maximiser = gamma @ X / gamma.sum()
    exact = squared_radii(maximiser[None], Gaussians(means[:1]))[0]
    found = squared_radius_by_bisection(X, gamma, maximiser, means[0], n_iter=20)
    # W - V cancels far from the maximiser's own scatter: its rounding bounds the agreement.
    rounding = 1e-12 * (np.square(X - means[0]).sum(axis=1).max() + np.square(X).max() * 1e-3)
    assert found <= exact
    assert found >= exact * (1 - 2.0**-19) - rounding


def test_printed_theorem_5_gives_a_far_smaller_radius():
    """Erratum 2: with Gamma W as the last term the maximum is (sqrt(D + s2) - sqrt(s2))^2."""
    X, gamma, maximiser, previous = problem(0)
    count = gamma.sum()
    scatter = -2 * objective(X, gamma, maximiser)
    about_previous = -2 * objective(X, gamma, previous)
    alphas = count * np.geomspace(1, 1e4, 20_000)[:, None]
    radii = np.linspace(0, squared_radii(maximiser[None], Gaussians(previous[None]))[0], 400)
    printed = (
        radii * alphas**2
        + (scatter - about_previous - count * radii) * alphas
        + count * about_previous
    )
    largest = radii[(printed <= 0).any(axis=0)].max()
    step, noise = radii[-1], scatter / count
    assert_allclose(largest, (np.sqrt(step + noise) - np.sqrt(noise)) ** 2, rtol=0.02)
    assert largest < 0.5 * step


def test_repaired_product_form_is_vacuous_at_alpha_equal_to_gamma():
    """Erratum 2: multiplying by (alpha - Gamma) lets alpha = Gamma allow any radius."""
    X, gamma, maximiser, previous = problem(0)
    count = gamma.sum()
    gain = -2 * (objective(X, gamma, previous) - objective(X, gamma, maximiser))  # W - V
    exact = squared_radii(maximiser[None], Gaussians(previous[None]))[0]

    def product_form(alpha, radius):
        return radius * alpha**2 - (gain + count * radius) * alpha + count * gain

    for radius in (0.5 * exact, 100 * exact):
        assert_allclose(product_form(count, radius), 0, atol=1e-9 * count * gain * 100)
    # Without the product, only radii up to the exact one allow alpha = Gamma.
    assert 0.5 * exact * count <= gain < 100 * exact * count

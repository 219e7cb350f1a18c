"""The paper's bounds, each against a simulation of what it bounds, and the verdicts on top."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import softmax
from scipy.stats import chi2

from fedgem import theory
from fedgem.theory import (
    cluster_count_probability,
    contraction_radius,
    finite_sample_distance,
    first_order_stability,
    guarantee,
    joint_guarantee,
    neighbourhood_radius,
    responsibility_bounds,
    strong_concavity,
)

Array = NDArray[np.float64]
WEIGHTS = np.array([0.2, 0.3, 0.5])
ROWS = 100_000


def simplex(r_min: float, n_features: int) -> Array:
    """Three means, each at distance r_min from the other two."""
    means = np.zeros((3, n_features))
    means[1, 0] = r_min
    means[2, :2] = r_min / 2, r_min * math.sqrt(3) / 2
    return means


def draw(rng: np.random.Generator, means: Array, n_rows: int = ROWS) -> Array:
    labels = rng.choice(3, size=n_rows, p=WEIGHTS)
    return means[labels] + rng.standard_normal((n_rows, means.shape[1]))


def responsibilities(rows: Array, means: Array) -> Array:
    return softmax(np.log(WEIGHTS) + rows @ means.T - (means**2).sum(axis=1) / 2, axis=1)


def starts(rng: np.random.Generator, means: Array, radius: float) -> list[Array]:
    """Means at `radius` from the true ones: at random, and towards each component (the worst)."""
    moves = [rng.standard_normal(means.shape) for _ in range(3)]
    moves += [target - means + 1e-9 for target in means]
    moves += [np.broadcast_to(means[0] - means[1], means.shape)]
    return [means + radius * m / np.linalg.norm(m, axis=1, keepdims=True) for m in moves]


def test_strong_concavity_is_the_curvature_of_the_objective() -> None:
    rng = np.random.default_rng(0)
    true_means = simplex(10, 2)
    rows = draw(rng, true_means, n_rows=20_000)
    gamma = responsibilities(rows, true_means)

    def objective(flat_means: Array) -> float:
        squares = ((rows[:, None, :] - flat_means.reshape(3, 2)) ** 2).sum(axis=2)
        return float((gamma * -squares / 2).sum() / len(rows))

    point, step = true_means.ravel() + 1.0, np.eye(6)
    hessian = np.array(
        [
            [
                (objective(point + u + v) - objective(point + u) - objective(point + v))
                + objective(point)
                for v in step
            ]
            for u in step
        ]
    )
    curvature = np.linalg.eigvalsh(-hessian).min()
    assert curvature == pytest.approx(strong_concavity(WEIGHTS), abs=0.01)


@pytest.mark.parametrize(("r_min", "n_features", "radius"), [(8, 2, 0.5), (10, 2, 1), (20, 30, 1)])
def test_expected_responsibilities_lie_within_their_bounds(
    r_min: float, n_features: int, radius: float
) -> None:
    rng = np.random.default_rng(1)
    true_means = simplex(r_min, n_features)
    rows = draw(rng, true_means)
    lower, upper = responsibility_bounds(r_min, n_features, WEIGHTS, radius)
    assert (upper - lower < 0.1).all(), "the bounds should say something here"
    # The noise of the labels is shared by both sides, so compare with the drawn weights.
    noise = responsibilities(rows, true_means).mean(axis=0) - WEIGHTS
    for means in starts(rng, true_means, radius):
        expected = responsibilities(rows, means).mean(axis=0) - noise
        assert (lower <= expected).all()
        assert (expected <= upper).all()


@pytest.mark.parametrize(("r_min", "radius"), [(6, 1), (12, 3), (20, 1), (24, 1)])
def test_first_order_stability_bounds_the_change_of_the_gradient(
    r_min: float, radius: float
) -> None:
    rng = np.random.default_rng(2)
    true_means = simplex(r_min, 2)
    rows = draw(rng, true_means)
    gamma_true = responsibilities(rows, true_means)
    bound = first_order_stability(r_min, r_min, 2, WEIGHTS, radius)
    for means in starts(rng, true_means, radius):
        gamma = responsibilities(rows, means)
        maximisers = (gamma.T @ rows) / gamma.sum(axis=0)[:, None]
        shift = gamma - gamma_true
        change = (shift.T @ rows - shift.sum(axis=0)[:, None] * maximisers) / ROWS
        assert np.linalg.norm(change) <= bound * np.linalg.norm(means - true_means)


def test_first_order_stability_has_the_printed_constant_below_16_features() -> None:
    # K = 3, κ = 2.5, min(d, K) = 2; the clusters are so far apart that π' vanishes.
    printed = 3**2 * (2 * 2.5 + 4) * (2 * 30 + 2) ** 2 * math.exp(-(14**2) * math.sqrt(2) / 8)
    assert first_order_stability(30, 30, 2, WEIGHTS, 1) == pytest.approx(printed, rel=1e-9)


def test_printed_decay_of_the_gradient_is_too_fast_above_16_features() -> None:
    # Two of 25 equal components in 25 features, at distance R, the others far away: the derivative
    # of one's gradient with respect to the other's mean is E[γ_1 γ_2 (x - θ_1)(x - θ_2)], which is
    # an integral over the line through both, in units of exp(-R² / 8).
    r, k = 60.0, 25
    integral, _ = quad(
        lambda x: (r**2 / 4 - x**2) * math.exp(-(x**2) / 2) / (2 * math.cosh(r * x / 2)), -10, 10
    )
    log_truth = math.log(integral / math.sqrt(2 * math.pi) / k) - r**2 / 8
    log_bound = math.log(theory._gradient_stability(r, r, k, np.full(k, 1 / k), 0) / k)
    log_printed = log_bound + r**2 / 4 * (4 - math.sqrt(k)) / 8
    assert log_printed < log_truth < log_bound


def test_printed_tail_is_too_thin_above_16_features() -> None:
    # exp(-r sqrt(d) / 2) at the printed r = 2 sqrt(d).
    assert chi2.sf(4 * 16, 16) < math.exp(-16)
    assert chi2.sf(4 * 17, 17) > math.exp(-17)


def test_population_step_contracts_within_the_radius() -> None:
    rng = np.random.default_rng(3)
    true_means = simplex(40, 2)
    rows = draw(rng, true_means)
    true_maximisers = responsibilities(rows, true_means).T @ rows
    true_maximisers /= responsibilities(rows, true_means).sum(axis=0)[:, None]
    radius = contraction_radius(40, 40, 2, WEIGHTS)
    assert radius > 0
    for means in starts(rng, true_means, radius):
        gamma = responsibilities(rows, means)
        maximisers = (gamma.T @ rows) / gamma.sum(axis=0)[:, None]
        assert np.linalg.norm(maximisers - true_maximisers, axis=1).max() < 1e-6 * radius


@pytest.mark.parametrize(
    ("r_min", "n_features", "weights"),
    [(60, 2, [0.5, 0.5]), (50, 400, [0.5, 0.5]), (50, 400, [0.1, 0.9]), (2e4, 3, WEIGHTS)],
)
def test_conditions_hold_at_the_contraction_radius_and_fail_just_outside(
    r_min: float, n_features: int, weights: list[float]
) -> None:
    radius = contraction_radius(r_min, r_min, n_features, weights)

    def holds(a: float) -> bool:
        spread = max(4 * math.sqrt(2 * math.log(r_min / 4)), 8 * math.sqrt(3))
        region = r_min / 2 - math.sqrt(min(n_features, len(weights))) * spread
        rate = first_order_stability(r_min, r_min, n_features, weights, a) / min(weights)
        return a <= region and rate < 1

    assert radius > 0
    assert holds(radius)
    assert not holds(radius * (1 + 1e-9))


@pytest.mark.parametrize(
    ("r_min", "n_features", "n_rows"),
    [(60, 2, 10**14), (50, 400, 10**18), (100, 2, 4 * 10**12), (44, 400, 10**20)],
)
def test_guarantee_takes_the_largest_radius(r_min: float, n_features: int, n_rows: int) -> None:
    verdict = guarantee(r_min, r_min, n_features, 2, [0.5, 0.5], n_rows, 0.05)
    assert verdict.applies
    assert verdict.contraction_rate < 1

    def holds(radius: float) -> bool:
        if radius > contraction_radius(r_min, r_min, n_features, [0.5, 0.5]):
            return False
        rate = first_order_stability(r_min, r_min, n_features, [0.5, 0.5], radius) / 0.5
        distance = finite_sample_distance(
            r_min, r_min, n_features, [0.5, 0.5], n_rows, 0.05, radius
        )
        return distance <= (1 - rate) * radius and distance / (1 - rate) < r_min / 4

    assert holds(verdict.contraction_radius)
    assert not holds(verdict.contraction_radius * (1 + 1e-9))


@settings(max_examples=40, deadline=None)
@given(
    r_min=st.floats(20, 200),
    growth=st.floats(1, 3),
    n_features=st.integers(1, 200),
    smallest=st.floats(0.01, 0.5),
)
def test_contraction_radius_grows_with_the_separation(
    r_min: float, growth: float, n_features: int, smallest: float
) -> None:
    weights = [smallest, 1 - smallest]
    near = contraction_radius(r_min, 600, n_features, weights)
    far = contraction_radius(r_min * growth, 600, n_features, weights)
    assert near <= far + 1e-9 < r_min * growth / 2


@settings(max_examples=40, deadline=None)
@given(n_rows=st.integers(1, 10**12), growth=st.integers(1, 1000), delta=st.floats(0.001, 0.999))
def test_finite_sample_distance_shrinks_with_rows(n_rows: int, growth: int, delta: float) -> None:
    few = finite_sample_distance(40, 60, 3, [0.4, 0.6], n_rows, delta, radius=5)
    many = finite_sample_distance(40, 60, 3, [0.4, 0.6], n_rows * growth, delta, radius=5)
    assert 0 < many <= few * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(
    r_min=st.floats(20, 120),
    log_rows=st.integers(8, 20),
    more_rows=st.integers(0, 4),
    delta=st.floats(0.001, 0.5),
)
def test_more_rows_never_lose_the_guarantee(
    r_min: float, log_rows: int, more_rows: int, delta: float
) -> None:
    few, many = (
        guarantee(r_min, 120, 2, 2, [0.3, 0.7], 10**n, delta)
        for n in (log_rows, log_rows + more_rows)
    )
    assert few.applies <= many.applies
    assert few.probability <= many.probability
    for verdict in (few, many):
        assert verdict.applies == (not verdict.reasons) == (verdict.probability > 0)
        if verdict.applies:
            assert verdict.neighbourhood_radius < min(r_min / 4, verdict.contraction_radius)


def test_distance_follows_the_rate_and_its_constants() -> None:
    def distance(n_rows: int, radius: float = 0, **constants: float) -> float:
        return finite_sample_distance(60, 60, 2, [0.5, 0.5], n_rows, 0.05, radius, **constants)

    rate = 2**3 * 61**3 * math.sqrt(2)  # K³ (1 + R_max)³ sqrt(d), over λ = 1 / 2
    assert distance(10**16) == pytest.approx(rate / 1e8 / 0.5, rel=1e-6)
    hoeffding = math.sqrt(math.log(2 / 0.05) / 2e16)
    assert distance(10**16, radius=5) - distance(10**16) == pytest.approx(10 * hoeffding / 0.5)
    assert distance(10**16, rate_constant=3) == pytest.approx(3 * distance(10**16))
    assert distance(10, tail_constant=0.5) == math.inf  # N^(-c d) = 0.1 is above delta
    assert distance(10, tail_constant=1) > distance(10, tail_constant=2)


def test_neighbourhood_radius_is_the_sum_of_all_steps() -> None:
    error = 0.0
    for _ in range(200):
        error = 0.9 * error + 0.3
    assert neighbourhood_radius(0.3, contraction_rate=0.9) == pytest.approx(error)
    assert neighbourhood_radius(0.3, contraction_rate=1) == math.inf


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"r_min": 30}, "First-order stability needs r_min / 2 above 19.6, but r_min / 2 is 15."),
        ({"r_min": 42, "n_features": 1000}, "r_min is too small for 1000 features: a contraction"),
        (
            {"r_min": 44, "n_features": 400, "weights": [0.05, 0.95]},
            "The weights are too unequal: a contraction needs a first-order-stability constant "
            "below the smallest weight, 0.05, but even at radius 0 it is 0.08624.",
        ),
        ({"n_rows": 10**9}, "There are too few rows: at radius 10.4 the neighbourhood radius must"),
        ({"n_rows": 20, "delta": 0.01}, "There are too few rows:"),
        ({"n_rows": 3}, "The finite-sample distance needs delta between 0.1111 and 1 with 3 rows"),
        ({"delta": 1.0}, "The finite-sample distance needs delta between 1e-28 and 1"),
        ({"delta": 0.0}, "The finite-sample distance needs delta between 1e-28 and 1"),
        ({"delta": -0.5}, "The finite-sample distance needs delta between 1e-28 and 1"),
    ],
)
def test_guarantee_says_why_it_does_not_apply(changes: dict[str, object], reason: str) -> None:
    case = {
        "r_min": 60,
        "r_max": 80,
        "n_features": 2,
        "n_components": 2,
        "weights": [0.5, 0.5],
        "n_rows": 10**14,
        "delta": 0.05,
    }
    assert guarantee(**case).applies
    verdict = guarantee(**case | changes)
    assert not verdict.applies
    assert verdict.probability == 0
    assert len(verdict.reasons) == 1
    assert verdict.reasons[0].startswith(reason)


def test_neighbourhood_must_be_below_a_quarter_of_the_separation() -> None:
    # The neighbourhood, about 120, lies inside the contraction region, but two would touch.
    assert contraction_radius(400, 400, 2, [0.5, 0.5]) > 150
    verdict = guarantee(400, 400, 2, 2, [0.5, 0.5], 150 * 10**12, 0.05)
    assert not verdict.applies
    assert "the neighbourhood radius must be below 100" in verdict.reasons[0]


def test_guarantee_lists_every_reason() -> None:
    verdict = guarantee(10, 80, 2, 2, [0.5, 0.5], 3, 0.05)
    assert len(verdict.reasons) == 2
    assert verdict.contraction_radius == 0
    assert verdict.neighbourhood_radius == math.inf


def test_probability_is_the_product_over_clients_and_components() -> None:
    deltas, counts = [0.1, 0.02, 0.3], [2, 5, 3]
    factors = [1 - d for d, k in zip(deltas, counts, strict=True) for _ in range(k)]
    assert cluster_count_probability(deltas, counts) == pytest.approx(math.prod(factors))
    assert cluster_count_probability(0, 7) == 1

    clients = [
        guarantee(80, 90, 2, k, np.full(k, 1 / k), 10**18, d)
        for d, k in zip(deltas, counts, strict=True)
    ]
    together = joint_guarantee(clients)
    assert together.applies
    assert together.probability == pytest.approx(math.prod(factors))


def test_one_client_without_guarantee_takes_it_from_all() -> None:
    covered = guarantee(60, 80, 2, 2, [0.5, 0.5], 10**14, 0.05)
    other = guarantee(60, 80, 2, 2, [0.4, 0.6], 10**6, 0.05)
    together = joint_guarantee([covered, other])
    assert not together.applies
    assert together.reasons == (f"Client 1: {other.reasons[0]}",)
    assert together.probability == 0
    assert together.strong_concavity == 0.4
    assert together.neighbourhood_radius == other.neighbourhood_radius


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: strong_concavity([0.5, 0.6]), "weights must be two or more positive numbers"),
        (lambda: strong_concavity([1.0]), "weights must be two or more positive numbers"),
        (lambda: strong_concavity([0.5, math.nan]), "weights must be two or more positive numbers"),
        (lambda: contraction_radius(0, 1, 2, WEIGHTS), "r_min must be positive and finite"),
        (lambda: contraction_radius(9, 9, 0, WEIGHTS), "n_features at least 1"),
        (lambda: contraction_radius(9, 8, 2, WEIGHTS), "r_max must be finite and at least r_min"),
        (lambda: responsibility_bounds(9, 2, WEIGHTS, 4.5), r"radius in \[0, r_min / 2\)"),
        (lambda: finite_sample_distance(9, 9, 2, WEIGHTS, 0, 0.1, 1), "n_rows must be at least 1"),
        (lambda: finite_sample_distance(9, 9, 2, WEIGHTS, 9, 1.0, 1), "delta must lie in"),
        (lambda: neighbourhood_radius(-1, 0.5), "must not be negative"),
        (lambda: cluster_count_probability([0.1, 1.1], 2), r"delta must lie in \[0, 1\]"),
        (lambda: guarantee(9, 9, 2, 2, WEIGHTS, 9, 0.1), "weights must hold 2 numbers, got 3"),
        (lambda: joint_guarantee([]), "at least one client"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()

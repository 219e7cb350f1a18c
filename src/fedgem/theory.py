"""The paper's convergence theory for Gaussian components with identity covariance.

Notation of the paper beside the names used here: R_min and R_max, the smallest and largest distance
between two cluster means (`r_min`, `r_max`); d (`n_features`); at client g: K_g, the number of its
components (`weights.size`), π (`weights`), κ = π_max / π_min, N_g (`n_rows`), and a_g, the distance
from the true means within which every mean starts (`radius`).

Where a printed bound does not follow from its proof, the functions use what does follow;
``docs/theory.md`` derives each difference.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import bisect
from scipy.special import gammaincc


@dataclass(frozen=True)
class Guarantee:
    """What the theory promises, for one client or for all.

    A bound that does not exist is ``inf``. The contraction radius is 0 where nothing contracts, and
    the probability is 0 where the guarantee does not apply.

    Attributes
    ----------
    applies : bool
        Whether every condition holds.
    reasons : tuple of str
        One sentence per condition that fails, with the number found and the number needed.
    strong_concavity : float
        λ, from `strong_concavity`.
    first_order_stability : float
        β, from `first_order_stability`, at the contraction radius.
    contraction_rate : float
        β / λ: each EM step multiplies the distance to the true means by at most this.
    contraction_radius : float
        a, the largest distance from the true means at which a start is covered. Where rows are
        too few, the one at which they fall least short.
    finite_sample_distance : float
        ε, from `finite_sample_distance`, at the contraction radius.
    neighbourhood_radius : float
        ε / (1 - β / λ): how near the true means the iterates end, and the final aggregation radius.
        Its square is the radius that the overlap test takes.
    probability : float
        The chance that all of this holds and the clusters are counted right.
    """

    applies: bool
    reasons: tuple[str, ...]
    strong_concavity: float
    first_order_stability: float
    contraction_rate: float
    contraction_radius: float
    finite_sample_distance: float
    neighbourhood_radius: float
    probability: float


def guarantee(
    r_min: float,
    r_max: float,
    n_features: int,
    n_components: int,
    weights: ArrayLike,
    n_rows: int,
    delta: float,
    *,
    rate_constant: float = 1.0,
    tail_constant: float = 1.0,
) -> Guarantee:
    """Say whether the theory covers one client, and why not where it does not.

    Theorem 4, "Number of Clusters Inference", and what it rests on. The contraction radius is the
    largest a that meets all of: the region of "GMM First-Order Stability", β < λ, the assumption
    "Finite-Sample and Population M-Step Proximity", ε <= (1 - β / λ) a, and Theorem 4's
    ε / (1 - β / λ) < R_min / 4.

    Parameters
    ----------
    r_min, r_max : float
        Smallest and largest distance between the means of two clusters of any clients.
    n_features : int
        Number of features.
    n_components : int
        Number of components of the client, at least 2.
    weights : array-like of shape (n_components,)
        Their weights: positive, with sum 1.
    n_rows : int
        Number of rows of the client.
    delta : float
        Chance, per component, that the finite-sample distance may be exceeded.
    rate_constant, tail_constant : float, default=1
        The constants hidden by the paper, see `finite_sample_distance`. It does not give them, so
        the answer follows the paper's rate and is not a certificate.

    Returns
    -------
    Guarantee
        For this client alone; `joint_guarantee` puts clients together.

    Examples
    --------
    >>> far = guarantee(60, 80, 2, 2, [0.5, 0.5], n_rows=10**14, delta=0.05)
    >>> far.applies, round(far.contraction_radius, 2), round(far.neighbourhood_radius, 2)
    (True, 10.4, 1.2)
    >>> guarantee(30, 80, 2, 2, [0.5, 0.5], n_rows=10**14, delta=0.05).reasons
    ('First-order stability needs r_min / 2 above 19.6, but r_min / 2 is 15.',)
    """
    if np.size(weights) != n_components:
        raise ValueError(f"weights must hold {n_components} numbers, got {np.size(weights)}.")
    mixture = (r_min, r_max, n_features, weights)
    concavity = strong_concavity(weights)
    limit = contraction_radius(*mixture)
    smallest_delta = _smallest_delta(n_features, n_rows, tail_constant)
    reachable = smallest_delta < delta < 1

    def bounds(radius: float) -> tuple[float, float, float]:
        stability = first_order_stability(*mixture, radius)
        distance = math.inf
        if reachable:
            distance = finite_sample_distance(
                *mixture,
                n_rows,
                delta,
                radius,
                rate_constant=rate_constant,
                tail_constant=tail_constant,
            )
        return stability, distance, neighbourhood_radius(distance, stability / concavity)

    def excess(radius: float) -> float:
        # Dividing ε <= (1 - β / λ) a by 1 - β / λ gives: the neighbourhood lies inside the region.
        return bounds(radius)[2] / min(radius, r_min / 4)

    radius = limit
    if limit > 0:
        # The excess falls and then rises with the radius, so first find its valley.
        radius = min(np.linspace(limit, limit / 100, 100).tolist(), key=excess)
        if excess(radius) < 1:
            radius = _largest(lambda a: excess(a) < 1, radius, limit)
    stability, distance, neighbourhood = bounds(radius)

    reasons = []
    if limit == 0:
        reasons.append(_why_no_contraction(*mixture))
    if not reachable:
        reasons.append(
            f"The finite-sample distance needs delta between {smallest_delta:.4g} and 1 with "
            f"{n_rows} rows, but delta is {delta:.4g}."
        )
    if not reasons and excess(radius) >= 1:
        reasons.append(
            f"There are too few rows: at radius {radius:.4g} the neighbourhood radius must be "
            f"below {min(radius, r_min / 4):.4g}, but with {n_rows} rows it is {neighbourhood:.4g}."
        )
    return Guarantee(
        applies=not reasons,
        reasons=tuple(reasons),
        strong_concavity=concavity,
        first_order_stability=stability,
        contraction_rate=stability / concavity,
        contraction_radius=radius,
        finite_sample_distance=distance,
        neighbourhood_radius=neighbourhood,
        probability=0.0 if reasons else cluster_count_probability(delta, n_components),
    )


def joint_guarantee(clients: Sequence[Guarantee]) -> Guarantee:
    """Put the guarantees of all clients together.

    Theorem 4, "Number of Clusters Inference": its conditions must hold at every client, and its
    probability is the product over the clients. The other numbers are those of the worst client.

    Examples
    --------
    >>> one = guarantee(60, 80, 2, 2, [0.5, 0.5], n_rows=10**14, delta=0.1)
    >>> other = guarantee(60, 80, 2, 3, [0.2, 0.4, 0.4], n_rows=10**6, delta=0.1)
    >>> round(joint_guarantee([one, one]).probability, 4)  # (1 - 0.1) ** (2 + 2)
    0.6561
    >>> joint_guarantee([one, other]).reasons[0][:33]
    'Client 1: There are too few rows:'
    """
    if not clients:
        raise ValueError("joint_guarantee needs the guarantee of at least one client.")
    return Guarantee(
        applies=all(client.applies for client in clients),
        reasons=tuple(f"Client {g}: {why}" for g, c in enumerate(clients) for why in c.reasons),
        strong_concavity=min(client.strong_concavity for client in clients),
        first_order_stability=max(client.first_order_stability for client in clients),
        contraction_rate=max(client.contraction_rate for client in clients),
        contraction_radius=min(client.contraction_radius for client in clients),
        finite_sample_distance=max(client.finite_sample_distance for client in clients),
        neighbourhood_radius=max(client.neighbourhood_radius for client in clients),
        probability=math.prod(client.probability for client in clients),
    )


def strong_concavity(weights: ArrayLike) -> float:
    """Return λ = π_min, the strong concavity of a client's population objective.

    Assumption "Strong Concavity", for Gaussian components: the Hessian of Q(. | θ*) in the mean of
    component k is -E[γ_k(x, θ*)] I = -π_k I.

    Examples
    --------
    >>> strong_concavity([0.2, 0.3, 0.5])
    0.2
    """
    return float(_checked(weights).min())


def responsibility_bounds(
    r_min: float, n_features: int, weights: ArrayLike, radius: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bound each component's expected responsibility E[γ_k(x, θ)] from below and above.

    Proof of the theorem "GMM First-Order Stability", for all θ within `radius` of the true means:

        π_k (1 - t) / (1 + e (1 - π_k) / π_k) <= E[γ_k] <= π_k + (K - 1) π_k e + (1 - π_k) t,

    where t = P(|x - θ_k*| > r) for a row x of component k, and within r the density of a wrong
    component is at most e = exp(-(R_min² - 2 R_min (a + r)) / 2) of the right one's. The paper
    leaves r open; taken here is the one at which e = t.

    Three differences from the print. It writes e as exp(-R_min² / 2 - 2 R_min (a + r)), though its
    two triangle inequalities give (R_min - a - r)² - (a + r)² = R_min² - 2 R_min (a + r). It bounds
    t by exp(-r sqrt(d) / 2) for r >= 2 sqrt(d), which is false from d = 17 on, so the exact
    chi-squared tail stands here, for every r in (0, R_min / 2 - a). It divides 1 - π_min by
    π_max in the lower bound, where only a component's own weight is derived.

    Returns
    -------
    lower, upper : ndarray of shape (n_components,)

    Examples
    --------
    >>> lower, upper = responsibility_bounds(8, 2, [0.3, 0.7], radius=0.5)
    >>> lower.round(3), upper.round(3)
    (array([0.288, 0.687]), array([0.313, 0.713]))
    """
    share = _checked(weights)
    if not (0 < r_min < math.inf and n_features >= 1 and 0 <= radius < r_min / 2):
        raise ValueError(
            "r_min must be positive and finite, n_features at least 1, radius in [0, r_min / 2), "
            f"got {r_min}, {n_features} and {radius}."
        )

    def leak(r: float) -> float:
        return math.exp(-r_min * (r_min / 2 - radius - r))

    def tail(r: float) -> float:
        return float(gammaincc(n_features / 2, r**2 / 2))

    r = bisect(lambda r: leak(r) - tail(r), 0, r_min / 2 - radius)
    error = max(leak(r), tail(r))
    lower = share * (1 - error) / (1 + error * (1 - share) / share)
    upper = share + (share.size - 1) * share * error + (1 - share) * error
    return lower, upper


def first_order_stability(
    r_min: float, r_max: float, n_features: int, weights: ArrayLike, radius: float
) -> float:
    """Return β, the first-order-stability constant of a client's objective.

    Theorem "GMM First-Order Stability", equation (4): for all θ within `radius` of the true means
    θ*, |∇Q(M(θ) | θ) - ∇Q(M(θ) | θ*)| <= β |θ - θ*|, with

        β  = (1 + π') β' + π' π_max,
        π' = max_k |E[γ_k(x, θ)] - π_k| / E[γ_k(x, θ)], from `responsibility_bounds`,
        β' = K² (2 κ + 4) (2 R_max + D)² exp(-(R_min / 2 - a)² min(sqrt(D), 4) / 8),  D = min(d, K).

    The print has sqrt(D) in place of min(sqrt(D), 4): for D > 16 it would make the bound smaller
    than the overlap of two Gaussians. It is ``inf`` where the bounds on E[γ_k] say nothing.

    Examples
    --------
    >>> first_order_stability(30, 40, 2, [0.5, 0.5], radius=1) < 1e-9
    True
    """
    share = _checked(weights)
    lower, upper = responsibility_bounds(r_min, n_features, share, radius)
    with np.errstate(divide="ignore"):
        drift = float((np.maximum(upper - share, share - lower) / lower).max())  # π'
    gradient = _gradient_stability(r_min, r_max, n_features, share, radius)
    return gradient + drift * (gradient + float(share.max()))


def contraction_radius(r_min: float, r_max: float, n_features: int, weights: ArrayLike) -> float:
    """Return the largest radius within which the population M-step contracts, 0 if there is none.

    Theorem "GMM M-Step Contraction Region": a contraction needs β < λ within the region of the
    theorem "GMM First-Order Stability",

        a <= R_min / 2 - sqrt(min(d, K)) max(4 sqrt(2 [log(R_min / 4)]_+), 8 sqrt(3)).

    The theorem states a bound with a hidden constant, its proof an explicit one whose π' depends
    on a itself. Both restate β < λ, which is solved here by bisection, since β grows with a.

    Examples
    --------
    >>> round(contraction_radius(60, 80, 2, [0.5, 0.5]), 2)
    10.4
    >>> contraction_radius(30, 80, 2, [0.5, 0.5])
    0.0
    """
    concavity = strong_concavity(weights)

    def contracts(radius: float) -> bool:
        return first_order_stability(r_min, r_max, n_features, weights, radius) < concavity

    limit = r_min / 2 - _needed_half_distance(r_min, n_features, weights)
    return _largest(contracts, 0, limit) if contracts(0) and limit > 0 else 0.0


def finite_sample_distance(
    r_min: float,
    r_max: float,
    n_features: int,
    weights: ArrayLike,
    n_rows: int,
    delta: float,
    radius: float,
    *,
    rate_constant: float = 1.0,
    tail_constant: float = 1.0,
) -> float:
    """Return ε, the largest distance between the finite-sample and the population M-step.

    Theorem "GMM Finite-Sample and Population M-Step Distance": with probability 1 - δ,

        ε = (ω + 2 a h) / (min_k E[γ_k] - h),  h = sqrt(log(2 / η) / (2 N)),
        ω = C max(K³ (1 + R_max)³ sqrt(d) max(1, log κ), (1 + R_max) d) / sqrt(N),

    where (1 - N^(-c d)) (1 - η) = 1 - δ fixes η, and E[γ_k] stands for its bound in
    `responsibility_bounds`. It is ``inf`` where the denominator is not positive, or where δ is at
    most N^(-c d).

    Parameters
    ----------
    r_min, r_max, n_features, weights, n_rows, delta
        As in `guarantee`.
    radius : float
        Distance from the true means within which the bound is to hold, below r_min / 2.
    rate_constant : float, default=1
        C. The paper hides it, and logarithms with it, in its O-tilde: it gives the rate only, so
        that the number returned is that rate and not a certified bound.
    tail_constant : float, default=1
        c, "some positive constant" in the paper.

    Examples
    --------
    >>> round(finite_sample_distance(60, 80, 2, [0.5, 0.5], 10**14, 0.05, radius=10), 3)
    1.203
    """
    if not (0 < delta < 1 and rate_constant > 0):
        raise ValueError(
            "delta must lie in (0, 1) and rate_constant be positive, "
            f"got {delta} and {rate_constant}."
        )
    share = _checked(weights)
    lower, _ = responsibility_bounds(r_min, n_features, share, radius)
    smallest_delta = _smallest_delta(n_features, n_rows, tail_constant)
    if delta <= smallest_delta:
        return math.inf
    eta = (delta - smallest_delta) / (1 - smallest_delta)
    hoeffding = math.sqrt(math.log(2 / eta) / (2 * n_rows))
    concavity = float(lower.min()) - hoeffding
    if concavity <= 0:
        return math.inf
    imbalance = max(1.0, math.log(share.max() / share.min()))
    rate = max(
        share.size**3 * (1 + r_max) ** 3 * math.sqrt(n_features) * imbalance,
        (1 + r_max) * n_features,
    )
    return (rate_constant * rate / math.sqrt(n_rows) + 2 * radius * hoeffding) / concavity


def neighbourhood_radius(distance: float, contraction_rate: float) -> float:
    """Return how near the true means the iterates end: ε / (1 - β / λ).

    Theorem "Single-Point EM Convergence" and equation (5). One step adds ε; the geometric series
    of all steps gives the factor. It is ``inf`` where the rate is not below 1.

    Examples
    --------
    >>> neighbourhood_radius(0.3, contraction_rate=0.5)
    0.6
    """
    if not (distance >= 0 and contraction_rate >= 0):
        raise ValueError(
            f"distance and contraction_rate must not be negative, got {distance} and "
            f"{contraction_rate}."
        )
    return distance / (1 - contraction_rate) if contraction_rate < 1 else math.inf


def cluster_count_probability(delta: ArrayLike, n_components: ArrayLike) -> float:
    """Return the probability of Theorem 4, "Number of Clusters Inference".

    It is the product over clients and components, Π_g (1 - δ_g)^(K_g). The components of one client
    share its rows, so their events are not independent as the product supposes; the union bound
    Π_g (1 - K_g δ_g) needs no such thing and differs by terms in δ².

    Parameters
    ----------
    delta, n_components : float and int, or arrays with one value per client
        δ_g and K_g.

    Examples
    --------
    >>> round(cluster_count_probability([0.1, 0.2], [2, 3]), 5)  # 0.9 ** 2 * 0.8 ** 3
    0.41472
    """
    deltas, counts = np.asarray(delta, dtype=float), np.asarray(n_components)
    if not (((deltas >= 0) & (deltas <= 1)).all() and (counts >= 1).all()):
        raise ValueError(
            f"delta must lie in [0, 1] and n_components be at least 1, got {deltas} and {counts}."
        )
    return float(np.prod((1 - deltas) ** counts))


def _gradient_stability(
    r_min: float, r_max: float, n_features: int, share: NDArray[np.float64], radius: float
) -> float:
    """Return β' of the theorem "GMM First-Order Stability", see `first_order_stability`."""
    if not r_min <= r_max < math.inf:
        raise ValueError(f"r_max must be finite and at least r_min = {r_min}, got {r_max}.")
    dimension = min(n_features, share.size)
    imbalance = float(share.max() / share.min())
    decay = (r_min / 2 - radius) ** 2 * min(math.sqrt(dimension), 4) / 8
    scale = share.size**2 * (2 * imbalance + 4) * (2 * r_max + dimension) ** 2
    return scale * math.exp(-decay)


def _needed_half_distance(r_min: float, n_features: int, weights: ArrayLike) -> float:
    """Return what R_min / 2 - a must reach in the theorem "GMM First-Order Stability"."""
    logarithm = math.log(max(1, r_min / 4))
    spread = max(4 * math.sqrt(2 * logarithm), 8 * math.sqrt(3))
    return math.sqrt(min(n_features, np.size(weights))) * spread


def _why_no_contraction(r_min: float, r_max: float, n_features: int, weights: ArrayLike) -> str:
    needed = _needed_half_distance(r_min, n_features, weights)
    if r_min / 2 <= needed:
        return (
            f"First-order stability needs r_min / 2 above {needed:.4g}, "
            f"but r_min / 2 is {r_min / 2:.4g}."
        )
    equal = np.full(np.size(weights), 1 / np.size(weights))
    cause = "The weights are too unequal"
    if contraction_radius(r_min, r_max, n_features, equal) == 0:
        cause = f"r_min is too small for {n_features} features"
    return (
        f"{cause}: a contraction needs a first-order-stability constant below the smallest weight, "
        f"{strong_concavity(weights):.4g}, but even at radius 0 it is "
        f"{first_order_stability(r_min, r_max, n_features, weights, 0):.4g}."
    )


def _smallest_delta(n_features: int, n_rows: int, tail_constant: float) -> float:
    """Return N^(-c d), the chance that the gradients' bound ω fails."""
    if not (n_rows >= 1 and tail_constant > 0):
        raise ValueError(
            "n_rows must be at least 1 and tail_constant positive, "
            f"got {n_rows} and {tail_constant}."
        )
    return float(n_rows ** (-tail_constant * n_features))


def _largest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest radius from `low`, where it holds, to `high` at which it still holds."""
    if holds(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _checked(weights: ArrayLike) -> NDArray[np.float64]:
    share = np.asarray(weights, dtype=float)
    if share.ndim != 1 or share.size < 2 or not (share > 0).all() or abs(share.sum() - 1) > 1e-9:
        raise ValueError(f"weights must be two or more positive numbers with sum 1, got {share}.")
    return share

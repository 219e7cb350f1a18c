"""Speed of the E-step with covariances, as ratios against peers measured in the same run.

Run it with `python benchmarks/mixture.py` (about three minutes on two cores). Every figure is
the median of `REPEATS` measurements, the peers' taken in turn with ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

import measuring
from fedgem.gaussian.covariances import CovarianceType, Gaussians
from fedgem.gaussian.estep import e_step
from fedgem.rows import Rows
from fedgem.typing import Array
from measuring import row, show

REPEATS = 5
medians = partial(measuring.medians, repeats=REPEATS)


def mixture(
    n: int, d: int, k: int, covariance_type: CovarianceType, spread: float = 0.5
) -> tuple[Array, Gaussians]:
    """Draw rows of a mixture, and components near those that they come from.

    The condition of the covariances is about 20 at a spread of 0.5, and up to 1e6 at 2.
    """
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(k, d))
    factors = np.eye(d) + spread / np.sqrt(d) * rng.normal(size=(k, d, d))
    X = np.empty((n, d))
    for part in np.array_split(np.arange(n), k):
        j = part[0] * k // n
        X[part] = centres[j] + rng.normal(size=(len(part), d)) @ factors[j].T
    rng.shuffle(X)
    full = factors @ factors.transpose(0, 2, 1)
    covariances = {
        "full": full,
        "tied": full.mean(axis=0),
        "diag": np.einsum("kii->ki", full).copy(),
        "spherical": np.einsum("kii->k", full) / d,
    }[covariance_type]
    means = centres + 0.1 * rng.normal(size=centres.shape)
    return X, Gaussians(means, covariances, covariance_type)


def peer(X: Array, components: Gaussians) -> Callable[[], None]:
    """Return scikit-learn's E-step and M-step from the same components."""
    k = len(components.means)
    model = GaussianMixture(
        k,
        covariance_type=components.covariance_type,
        weights_init=np.full(k, 1 / k),
        means_init=components.means,
        precisions_init=np.linalg.inv(components.covariances)
        if components.covariance_type in ("full", "tied")
        else 1 / components.covariances,
    )
    model._initialize_parameters(X[: 10 * k], np.random.RandomState(0))

    def e_and_m() -> None:
        _, log_responsibilities = model._e_step(X)
        model._m_step(X, log_responsibilities)

    return e_and_m


def floor(X: Array, k: int) -> Callable[[], None]:
    """Return two N x d x dK products and one exp(N x K), block by block."""
    n, d = X.shape
    wide = np.random.default_rng(0).normal(size=(d, d * k))
    logits = np.zeros((2**12, k))

    def two_products() -> None:
        for start in range(0, n, 2**12):
            block = X[start : start + 2**12]
            product = block @ wide
            np.exp(logits[: len(block)])
            block.T @ product

    return two_products


def large(
    n: int,
    d: int,
    k: int,
    covariance_type: CovarianceType,
    target: float | None = None,
    spread: float = 0.5,
) -> None:
    """Time one pass over many rows, on two threads."""
    X, components = mixture(n, d, k, covariance_type, spread)
    rows, log_weights = Rows.from_array(X), np.full(k, -np.log(k))
    with ThreadPoolExecutor(2) as pool, threadpool_limits(2):

        def ours() -> None:
            e_step(rows, components, log_weights, pool)

        ours()
        mine, theirs, least = medians(ours, peer(X, components), floor(X, k))
    what = f"{covariance_type}{', ill-conditioned' * (spread > 1)}, {n:,} x {d}, K = {k}"
    row(f"scikit-learn / E-step, {what}", theirs / mine, target or 1, "x", at_least=True)
    if covariance_type == "full":
        row(f"E-step / the floor, {what}", mine / least, 2.5, "x", at_least=False)


def small(n: int, d: int, k: int, covariance_type: CovarianceType, target: float) -> None:
    """Time the pass of a small client, 100 at a time."""
    X, components = mixture(n, d, k, covariance_type)
    rows, log_weights = Rows.from_array(X), np.full(k, -np.log(k))

    def ours() -> None:
        for _ in range(100):
            e_step(rows, components, log_weights)

    ours()
    (spent,) = medians(ours)
    figure = f"E-step, {covariance_type}, {n} x {d}, K = {k}"
    row(figure, 1e6 * spent / 100, target, "us", at_least=False)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    large(1_000_000, 16, 16, "full", 10)
    large(100_000, 64, 16, "full", 5)
    large(100_000, 64, 16, "full", 5, spread=2)
    for covariance_type in ("tied", "diag", "spherical"):
        large(1_000_000, 16, 16, covariance_type)
        large(100_000, 64, 16, covariance_type)
    for covariance_type in ("full", "tied", "diag", "spherical"):
        small(490, 10, 8, covariance_type, 150)
    small(490, 64, 8, "full", 3000)
    show("fedgem mixtures")

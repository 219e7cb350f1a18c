"""Speed and memory of merging components by the likelihood lost.

Run it with `python benchmarks/merging.py` (about four minutes on two cores). The times of the
small sizes are medians of `REPEATS` measurements, those of the large one single measurements.
"""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from fedgem.merging import merge_components
from fedgem.typing import Array
from measuring import medians, row, show

REPEATS = 7


def components(n: int, d: int, n_clusters: int, spread: float = 2.0) -> tuple[Array, Array, Array]:
    """Draw each component's 30 to 300 rows from one of the clusters, and shrink its covariance."""
    rng = np.random.default_rng(0)
    centres = spread * rng.normal(size=(n_clusters, d))
    factors = np.eye(d) + 0.3 / np.sqrt(d) * rng.normal(size=(n_clusters, d, d))
    counts = rng.integers(30, 300, size=n)
    means, covariances = np.empty((n, d)), np.empty((n, d, d))
    for i, count in enumerate(counts):
        k = rng.integers(n_clusters)
        rows = rng.normal(size=(count, d)) @ factors[k].T
        means[i] = centres[k] + rows.mean(axis=0)
        own = count * np.cov(rows.T, bias=True) + d * factors[k] @ factors[k].T
        covariances[i] = own / (count + d)
    return counts.astype(float), means, covariances


def large() -> None:
    """Merge 100,000 components of 1,000 clients around 1,000 centres in 16 dimensions."""
    parts = components(100_000, 16, 1000)
    with ThreadPoolExecutor(2) as pool:
        for n_clusters, size_free in ((1000, False), (1, False), (1, True)):
            once = partial(merge_components, *parts, n_clusters, size_free=size_free, pool=pool)
            (spent,) = medians(once, repeats=1)
            figure = f"C = 100,000 to {n_clusters:,}, d = 16{', size-free' * size_free}"
            row(figure, spent, 60, "s", at_least=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row("peak memory of its process", peak, 4, "GB", at_least=False)


def ordinary(d: int, n_clusters: int, target: float, spread: float = 2.0) -> None:
    """Merge what 100 clients with 6 components send."""
    parts = components(600, d, n_clusters, spread)
    with ThreadPoolExecutor(2) as pool:
        for size_free in (False, True):
            once = partial(merge_components, *parts, size_free=size_free, pool=pool)
            (spent,) = medians(once, repeats=REPEATS)
            what = f"{', overlapping' * (spread < 1)}{', size-free' * size_free}"
            figure = f"C = 600 to 1, d = {d}, K = {n_clusters}{what}"
            row(figure, spent, target, "s", at_least=False)


if __name__ == "__main__":
    with threadpool_limits(2):
        merge_components(*components(100, 2, 10))
        large()  # first, since its peak memory is read off this process
        for n_clusters in (10, 47):
            ordinary(10, n_clusters, 0.15)
            ordinary(64, n_clusters, 1.5)
        ordinary(64, 10, 1.5, spread=0.2)
    show("fedgem merging")

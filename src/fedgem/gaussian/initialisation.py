"""Where a client's components start."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus

from fedgem.gaussian.covariances import Gaussians
from fedgem.gaussian.estep import e_step
from fedgem.rows import Rows
from fedgem.typing import Array

# Beyond this many rows the starts come from a sample: k-means++ needs a pass per component, and
# a sample of this size already places its seeds as well as all rows would.
SAMPLE = 20_000
TRIAL_STEPS = 10


def within_variances(rows: Rows, n_components: int, n_init: int, seed: list[int]) -> Array:
    """Return the variance of each feature about the centres that k-means finds.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [2.0], [90.0], [92.0]]))
    >>> within_variances(rows, 2, n_init=1, seed=[0])
    array([2.])
    """
    rng = np.random.default_rng(seed)
    sample = rows.sample(SAMPLE, rng).astype(np.float64)
    best = np.full(sample.shape[1], np.inf)
    for _ in range(n_init):
        state = np.random.RandomState(rng.integers(2**32, dtype=np.uint32))
        means, _ = kmeans_plusplus(sample, n_components, random_state=state)
        for _ in range(TRIAL_STEPS):  # Lloyd's algorithm
            labels = cdist(sample, means, "sqeuclidean").argmin(axis=1)
            for k in np.unique(labels):
                means[k] = sample[labels == k].mean(axis=0)
        within = np.square(sample - means[labels]).sum(axis=0)
        best = within if within.sum() < best.sum() else best
    return np.asarray(best / max(1, len(sample) - n_components))


def start_means(rows: Rows, log_weights: Array, n_init: int, seed: list[int]) -> Array:
    """Choose starting means by k-means++ (Arthur and Vassilvitskii, 2007).

    Parameters
    ----------
    rows : Rows
        The client's rows.
    log_weights : array of shape (K,)
        Logarithms of the components' weights.
    n_init : int
        How many starts to try. Several are each given `TRIAL_STEPS` EM steps, and the likeliest
        wins; a single one is taken as it is.
    seed : list of int
        Decides the draws.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [10.0]]))
    >>> sorted(start_means(rows, np.zeros(2), n_init=1, seed=[0]).ravel().tolist())
    [0.0, 10.0]
    """
    rng = np.random.default_rng(seed)
    sample = rows.sample(SAMPLE, rng).astype(np.float64)
    sampled = Rows.from_array(sample)
    starts, likelihoods = [], []
    for _ in range(n_init):
        state = np.random.RandomState(rng.integers(2**32, dtype=np.uint32))
        means, _ = kmeans_plusplus(sample, len(log_weights), random_state=state)
        likelihood = 0.0
        for _ in range(TRIAL_STEPS if n_init > 1 else 0):
            statistics, likelihood = e_step(sampled, Gaussians(means), log_weights)
            means = statistics.means
        starts.append(means)
        likelihoods.append(likelihood)
    return np.asarray(starts[int(np.argmax(likelihoods))])

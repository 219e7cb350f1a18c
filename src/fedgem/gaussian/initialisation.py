"""Where a client's components start."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import kmeans_plusplus

from fedgem.gaussian.covariances import CovarianceType, Gaussians
from fedgem.gaussian.density import log_of
from fedgem.gaussian.estep import e_step
from fedgem.gaussian.mstep import Model, at_prior, m_step, penalty
from fedgem.gaussian.shrinkage import shrink
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
    offsets = _offsets(sample, n_components, n_init, rng)
    return np.asarray(np.square(offsets).sum(axis=0) / max(1, len(sample) - n_components))


def within_covariance(
    rows: Rows,
    covariance_type: CovarianceType,
    n_components: int,
    n_init: int,
    seed: list[int],
    reg_covar: float,
) -> Array:
    """Return the covariance about the centres that k-means finds: what components shrink towards.

    It is itself shrunk towards its diagonal, with as many rows as there are features, and gains
    `reg_covar` times each feature's variance, so that it is positive definite for any rows.

    Parameters
    ----------
    rows : Rows
        The client's rows.
    covariance_type : {"full", "tied", "diag", "spherical"}
        The form of the covariance.
    n_components : int
        The number of centres.
    n_init : int
        How many starts k-means tries.
    seed : list of int
        Decides the draws.
    reg_covar : float
        The floor, relative to the features' variances.

    Returns
    -------
    array of shape (d, d), (d,) or ()

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [2.0], [90.0], [92.0]]))
    >>> within_covariance(rows, "diag", 2, n_init=1, seed=[0], reg_covar=0.0)
    array([2.])
    """
    rng = np.random.default_rng(seed)
    sample = rows.sample(SAMPLE, rng).astype(np.float64)
    n_rows, n_features = sample.shape
    variances = _variances(sample)
    units = _units(variances, covariance_type)
    offsets = _offsets(sample / units, n_components, n_init, rng) * units
    degrees = max(1, n_rows - n_components)
    if covariance_type in ("full", "tied"):
        covariance = (offsets.T @ offsets / degrees)[None]
        counts, diagonal = np.array([float(n_rows)]), np.diag(np.diagonal(covariance[0]))
        covariance = shrink(counts, covariance, diagonal, float(n_features))[0]
        return np.asarray(covariance + reg_covar * np.diag(variances))
    within = np.square(offsets).sum(axis=0) / degrees + reg_covar * variances
    return np.asarray(within.mean()) if covariance_type == "spherical" else np.asarray(within)


def _offsets(sample: Array, n_components: int, n_init: int, rng: np.random.Generator) -> Array:
    """Return each row's offset from its centre in the best of several runs of Lloyd's algorithm."""
    best, least = sample, np.inf
    for _ in range(n_init):
        state = np.random.RandomState(rng.integers(2**32, dtype=np.uint32))
        means, _ = kmeans_plusplus(sample, n_components, random_state=state)
        for _ in range(TRIAL_STEPS):
            labels = cdist(sample, means, "sqeuclidean").argmin(axis=1)
            for k in np.unique(labels):
                means[k] = sample[labels == k].mean(axis=0)
        offsets = sample - means[labels]
        within = np.square(offsets).sum(axis=0).sum()
        best, least = (offsets, within) if within < least else (best, least)
    return best


def _variances(sample: Array) -> Array:
    """Return the features' variances; one that does not vary takes the mean of the others."""
    variances = sample.var(axis=0)
    rounding = len(sample) * np.finfo(np.float64).eps * sample.mean(axis=0)
    varies = variances > np.square(rounding)
    return np.where(varies, variances, variances[varies].mean() if varies.any() else 1.0)


def _units(variances: Array, covariance_type: CovarianceType) -> Array:
    """Return what k-means measures the features in: their spread, where the model has one each."""
    if covariance_type in ("identity", "spherical"):
        return np.ones_like(variances)
    return np.sqrt(variances)


def start(
    rows: Rows, weights: Array, n_init: int, seed: list[int], model: Model | None = None
) -> tuple[Gaussians, Array]:
    """Choose where to start, by k-means++ (Arthur and Vassilvitskii, 2007).

    Parameters
    ----------
    rows : Rows
        The client's rows.
    weights : array of shape (K,)
        The components' weights.
    n_init : int
        How many starts to try. Several are each given `TRIAL_STEPS` EM steps, and the likeliest
        wins; a single one is taken as it is.
    seed : list of int
        Decides the draws.
    model : Model, optional
        What the mixture learns; only its means by default. Covariances start from its prior.

    Returns
    -------
    components : Gaussians
        The start.
    weights : array of shape (K,)
        Their weights; others than those given only where the model learns them.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows.from_array(np.array([[0.0], [10.0]]))
    >>> components, _ = start(rows, np.ones(2) / 2, n_init=1, seed=[0])
    >>> sorted(components.means.ravel().tolist())
    [0.0, 10.0]
    """
    model = model or Model()
    rng = np.random.default_rng(seed)
    sample = rows.sample(SAMPLE, rng).astype(np.float64)
    sampled = Rows.from_array(sample)
    seen = sample / _units(_variances(sample), model.covariance_type)
    starts, objectives = [], []
    for _ in range(n_init):
        state = np.random.RandomState(rng.integers(2**32, dtype=np.uint32))
        _, chosen = kmeans_plusplus(seen, len(weights), random_state=state)
        components, own, objective = at_prior(sample[chosen], model), weights, 0.0
        for _ in range(TRIAL_STEPS if n_init > 1 else 0):
            statistics, log_likelihood = e_step(sampled, components, log_of(own))
            objective = log_likelihood + penalty(components, own, model)
            components, own = m_step(statistics, model, own)
        starts.append((components, own))
        objectives.append(objective)
    return starts[int(np.argmax(objectives))]

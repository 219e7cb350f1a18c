r"""Shrinkage: what lets a few rows describe a covariance in many features.

A component's covariance is drawn towards a prior W, as if `strength` more rows had the covariance
W about the component's mean. That is no heuristic: it maximises the log-likelihood plus

.. math:: -\frac{\tau}{2} \sum_k \left[\log|S_k| + \mathrm{tr}(S_k^{-1} W)\right],

tau being the strength, the logarithm of an inverse Wishart density up to its constant (for one
covariance S of all components, the sum has one term). The terms of Q that hold S_k are
-n_k/2 [log|S_k| + tr(S_k^-1 C_k)], so that their sum with the prior's is greatest at
S_k = (n_k C_k + tau W) / (n_k + tau).
"""

from __future__ import annotations

import numpy as np

from fedgem.gaussian.covariances import CovarianceType, Gaussians, log_determinants
from fedgem.typing import Array


def shrink(counts: Array, covariances: Array, prior: Array, strength: float) -> Array:
    """Return (n_k S_k + strength * W) / (n_k + strength) for covariances of any type.

    Parameters
    ----------
    counts : array of shape (K,)
        How many rows each component answers for.
    covariances : array of shape (K, d, d), (1, d, d), (K, d) or (K,)
        Their covariances, in the form that `Statistics` has them: (1, d, d) is one for all
        components, and counts all their rows.
    prior : array
        What to shrink towards: one for all components, of shape (d, d), (d,) or (), or one for
        each in the form of `covariances`. `project` turns a matrix into the form of a type.
    strength : float
        How many rows the prior stands for.

    Returns
    -------
    array of the shape of `covariances`
        Without rows and without strength they stay as they are.

    Examples
    --------
    >>> import numpy as np
    >>> shrink(np.array([3.0, 0.0]), np.array([4.0, 4.0]), np.array(8.0), strength=1.0)
    array([5., 8.])
    """
    if covariances.ndim == 3 and len(covariances) != len(counts):
        counts = counts.sum(keepdims=True)
    total = counts + strength
    share = np.divide(strength, total, out=np.zeros_like(total), where=total > 0)
    share = share.reshape(-1, *(1,) * (covariances.ndim - 1))
    return np.asarray((1 - share) * covariances + share * prior)


def project(covariance: Array, covariance_type: CovarianceType) -> Array:
    """Return one covariance matrix in the form that a type has it in.

    Parameters
    ----------
    covariance : array of shape (d, d)
        The matrix.
    covariance_type : {"full", "tied", "diag", "spherical"}
        The type.

    Returns
    -------
    array of shape (d, d), (d,) or ()
        The matrix, its diagonal, or the mean of its diagonal: the most likely covariance of the
        type where the matrix is that of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> project(np.array([[1.0, 0.5], [0.5, 3.0]]), "diag")
    array([1., 3.])
    """
    if covariance_type in ("full", "tied"):
        return covariance
    variances = np.diagonal(covariance)
    return np.asarray(variances.mean()) if covariance_type == "spherical" else variances.copy()


def log_prior(components: Gaussians, prior: Array, strength: float) -> float:
    """Return what shrinkage adds to the log-likelihood that it maximises.

    Parameters
    ----------
    components : Gaussians
        Of any type but "identity", which has nothing to shrink.
    prior, strength
        As in `shrink`.

    Examples
    --------
    >>> import numpy as np
    >>> log_prior(Gaussians(np.zeros((1, 1)), np.ones(1), "spherical"), np.array(3.0), strength=2.0)
    -3.0
    """
    assert components.covariances is not None
    covariances, n_features = components.covariances, components.means.shape[1]
    logs = log_determinants(components)
    if components.covariance_type in ("full", "tied"):
        traces = np.trace(np.linalg.solve(covariances, prior), axis1=-2, axis2=-1)
    elif components.covariance_type == "diag":
        traces = (prior / covariances).sum(axis=1)
    else:
        traces = n_features * prior / covariances
    if components.covariance_type == "tied":
        logs = logs[:1]
    return -0.5 * strength * float((logs + traces).sum())

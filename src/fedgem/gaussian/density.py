"""Densities of a Gaussian mixture."""

from __future__ import annotations

import math

import numpy as np

from fedgem.gaussian.covariances import Gaussians, log_determinants, squared_distances
from fedgem.typing import Array


def log_joint(X: Array, components: Gaussians, log_weights: Array) -> Array:
    """Return log(pi_k phi(x | mean_k, covariance_k)) of every row and component.

    Parameters
    ----------
    X : array of shape (N, d)
        Some rows.
    components : Gaussians
        The components' means and covariances.
    log_weights : array of shape (K,)
        Logarithms of the weights.

    Returns
    -------
    array of shape (N, K)

    Examples
    --------
    >>> import numpy as np
    >>> log_joint(np.array([[0.0]]), Gaussians(np.array([[0.0], [2.0]])), np.zeros(2)).round(3)
    array([[-0.919, -2.919]])
    """
    distances = squared_distances(X, components)
    constants = log_determinants(components) + X.shape[1] * math.log(2 * math.pi)
    joint: Array = log_weights - 0.5 * (distances + constants)
    return joint


def log_of(weights: Array) -> Array:
    """Return the logarithms of weights, of which some may be zero.

    Examples
    --------
    >>> import numpy as np
    >>> log_of(np.array([0.0, 1.0]))
    array([-inf,   0.])
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights))

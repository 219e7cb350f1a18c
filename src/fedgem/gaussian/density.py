"""Densities of a Gaussian mixture."""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial.distance import cdist

from fedgem.typing import Array


def log_joint(X: Array, means: Array, log_weights: Array) -> Array:
    """Return log(pi_k phi(x | mean_k, I)) of every row and component.

    Parameters
    ----------
    X : array of shape (N, d)
        Some rows.
    means : array of shape (K, d)
        The components' means.
    log_weights : array of shape (K,)
        Logarithms of the weights.

    Returns
    -------
    array of shape (N, K)

    Examples
    --------
    >>> import numpy as np
    >>> log_joint(np.array([[0.0]]), np.array([[0.0], [2.0]]), np.zeros(2)).round(3)
    array([[-0.919, -2.919]])
    """
    distances: Array = cdist(np.asarray(X, np.float64), means, "sqeuclidean")
    joint: Array = log_weights - 0.5 * (distances + means.shape[1] * math.log(2 * math.pi))
    return joint

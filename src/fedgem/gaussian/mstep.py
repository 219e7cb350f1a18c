r"""The M-step: the covariances and weights that suit the means best.

What training raises is the log-likelihood with two prior terms, each there only where there is
something to learn:

.. math::

    \sum_n \log \sum_k \pi_k \phi(x_n \mid m_k, S_k)
    - \frac{d}{2} \sum_k \left[\log|S_k| + \mathrm{tr}(S_k^{-1} W)\right] + \sum_k \log \pi_k .

The first is that of `fedgem.gaussian.shrinkage` with d rows' worth of the client's own W; the
second, a Dirichlet density with parameter 2, is as good as one more row for each component. Given
responsibilities and *any* means m, Q with these terms is greatest at

.. math::

    S_k = \frac{n_k [C_k + (m_k - M_k)(m_k - M_k)'] + d W}{n_k + d}, \qquad
    \pi_k = \frac{n_k + 1}{N + K},

n, M and C being the statistics of the E-step; each type takes the former in its own form, pooled
over the components for "tied". So the mean may be chosen first, by anybody, and the
rest after it (expectation conditional maximisation; Meng and Rubin, 1993).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgem.gaussian.covariances import CovarianceType, Gaussians
from fedgem.gaussian.shrinkage import log_prior, shrink
from fedgem.gaussian.statistics import Statistics, covariances_about
from fedgem.typing import Array


@dataclass(frozen=True)
class Model:
    """What a client's mixture learns besides its means.

    Attributes
    ----------
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        The form of the covariances.
    learn_weights : bool
        Whether the weights are learned.
    prior : array of shape (d, d), (d,) or (), optional
        What covariances shrink towards, one component's worth; None for identities.
    """

    covariance_type: CovarianceType = "identity"
    learn_weights: bool = False
    prior: Array | None = None


def m_step(
    statistics: Statistics, model: Model, weights: Array, means: Array | None = None
) -> tuple[Gaussians, Array]:
    """Return the components and weights that are best for some means.

    Parameters
    ----------
    statistics : Statistics
        Of the E-step (eq. estep).
    model : Model
        What to learn.
    weights : array of shape (K,)
        The weights, which stay unless the model learns them.
    means : array of shape (K, d), optional
        The means; by default those that are best themselves (eq. gmm_m_step).

    Examples
    --------
    >>> import numpy as np
    >>> some = Statistics(np.array([3.0]), np.array([[1.0]]), np.array([2.0]))
    >>> components, _ = m_step(some, Model("spherical", prior=np.array(6.0)), np.ones(1))
    >>> components.covariances
    array([3.])
    """
    counts, means = statistics.counts, statistics.means if means is None else means
    if model.learn_weights:
        weights = (counts + 1) / (counts.sum() + len(counts))
    covariances = covariances_about(statistics, means)
    if covariances is None or model.prior is None:
        return Gaussians(means), weights
    covariances = shrink(counts, covariances, model.prior, float(means.shape[1]))
    covariances = covariances[0] if model.covariance_type == "tied" else covariances
    return Gaussians(means, covariances, model.covariance_type), weights


def at_prior(means: Array, model: Model) -> Gaussians:
    """Return components whose covariances are all the prior's.

    Examples
    --------
    >>> import numpy as np
    >>> at_prior(np.zeros((2, 1)), Model("spherical", prior=np.array(6.0))).covariances
    array([6., 6.])
    """
    if model.prior is None:
        return Gaussians(means)
    n_copies = () if model.covariance_type == "tied" else (len(means),)
    covariances = np.broadcast_to(model.prior, n_copies + model.prior.shape).copy()
    return Gaussians(means, covariances, model.covariance_type)


def penalty(components: Gaussians, weights: Array, model: Model) -> float:
    """Return what the prior terms add to the log-likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> penalty(Gaussians(np.zeros((1, 2))), np.ones(1), Model())
    0.0
    """
    total = float(np.log(weights).sum()) if model.learn_weights else 0.0
    if model.prior is not None:
        total += log_prior(components, model.prior, float(components.means.shape[1]))
    return total

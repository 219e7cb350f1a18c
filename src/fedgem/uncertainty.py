r"""Uncertainty sets: how far a mean may move without lowering its client's objective.

With identity covariance the part of Q that depends on one mean m is, up to a constant,
:math:`-\frac12 \sum_n \gamma_n |x_n - m|^2 = -\frac12 (V + \Gamma |m - M|^2)`, where M is the
maximiser, Gamma the sum of the responsibilities and V their scatter about M. So Q(m) >= Q(theta')
says no more than |m - M|^2 <= |theta' - M|^2: the uncertainty set is the ball about M whose
surface passes through the previous mean theta'.

With a covariance S of the component's own, which the E-step used and which stays for this step, the
same holds in its Mahalanobis distance: the set is the ellipsoid
(m - M)' S^-1 (m - M) <= (theta' - M)' S^-1 (theta' - M). Its squared radius is measured in S.

Radii are squared throughout, as epsilon is in the paper's eq. (rad_prob).
"""

from __future__ import annotations

import numpy as np

from fedgem.gaussian.covariances import Gaussians, squared_distances_to_own
from fedgem.typing import Array


def squared_radii(maximisers: Array, previous: Gaussians) -> Array:
    """Return the exact solution of the radius problem (eq. rad_prob) for each component.

    Parameters
    ----------
    maximisers : array of shape (K, d)
        The maximisers M of the local objective.
    previous : Gaussians
        The means theta' and covariances S that they were computed at.

    Returns
    -------
    array of shape (K,)
        epsilon* = (M - theta')' S^-1 (M - theta'), with identity covariances |M - theta'|^2.

    Examples
    --------
    >>> import numpy as np
    >>> squared_radii(np.array([[3.0, 4.0]]), Gaussians(np.array([[0.0, 0.0]])))
    array([25.])
    """
    return squared_distances_to_own(maximisers, previous)


def squared_radius_by_bisection(
    X: Array, responsibilities: Array, maximiser: Array, previous: Array, *, n_iter: int = 10
) -> float:
    r"""Solve the radius problem of one component by the paper's Algorithm 4, repaired.

    With V and W the scatters of the rows about the maximiser and about the previous mean, the
    Lagrange dual of "the worst mean in the ball" (proof of Theorem 5) is
    :math:`\max_{\alpha \ge \Gamma} -V - \alpha\varepsilon`, and a radius is feasible when

    .. math:: \alpha\varepsilon \le W - V \quad\text{for some}\quad \alpha \ge \Gamma.

    The printed constraint is this one times :math:`(\alpha - \Gamma)`, which makes
    :math:`\alpha = \Gamma` satisfy it at any radius, and its last term should be
    :math:`\Gamma (W - V)` instead of :math:`\Gamma W`. This function exists to check
    `squared_radii`, which gives the answer at once.

    Parameters
    ----------
    X : array of shape (N, d)
        The client's rows.
    responsibilities : array of shape (N,)
        What share of each row the component answers for.
    maximiser, previous : arrays of shape (d,)
        The maximiser M and the previous mean theta'.
    n_iter : int
        Halvings of the interval, the paper's I.

    Returns
    -------
    float
        A feasible squared radius, short of the largest by at most
        ``|M - theta'|^2 / 2**n_iter``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [2.0]])
    >>> radius = squared_radius_by_bisection(X, np.ones(2), np.array([1.0]), np.array([4.0]))
    >>> round(radius, 2)  # |1 - 4|^2 = 9
    8.99
    """
    count = responsibilities.sum()
    about_maximiser = responsibilities @ np.square(X - maximiser).sum(axis=1)
    about_previous = responsibilities @ np.square(X - previous).sum(axis=1)
    low, high = 0.0, float(np.square(maximiser - previous).sum())
    for _ in range(n_iter):
        middle = 0.5 * (low + high)
        # The feasibility problem (eq. feas_prob): its violation t is smallest at alpha = Gamma.
        violation = max(0.0, count * middle - (about_previous - about_maximiser))
        low, high = (middle, high) if violation == 0 else (low, middle)
    return low

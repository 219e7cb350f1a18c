"""Where two ellipsoids meet.

Each is the set of all points within a radius r of a centre, in the Mahalanobis distance of a
covariance S. Of all points, those that are the nearest to both at once lie on one curve: for t in
[0, 1] the point x(t) that minimises t d(x, 1)^2 + (1 - t) d(x, 2)^2, which runs from the second
centre to the first. With D the step from the first centre to the second,

    x(t) - c_1 = (1 - t) S_1 z,    c_2 - x(t) = t S_2 z,    z = [(1 - t) S_1 + t S_2]^-1 D,

so that its distances from the centres are (1 - t) sqrt(z' S_1 z) and t sqrt(z' S_2 z). The first
falls with t and the second grows: the ellipsoids overlap exactly if some x(t) lies in both. This
is the test of Perram and Wertheim (1985), max over s of s (1 - s) D' [(1 - s) A + s B]^-1 D <= 1
with A = r_1^2 S_1 and B = r_2^2 S_2, in other coordinates, which take radii of zero as well.

The meeting point is x(1/2), which favours neither, or the point nearest to it on the curve that
lies in both. For balls of one scale the curve is the line between the centres, and the point is
the paper's nu*: its share of the way, clip(1/2, 1 - r'/w, r/w), is 1 - t.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg import solve_triangular

from fedgem.typing import Array


@njit(cache=True, nogil=True)
def _direction(t, step, one, two):  # type: ignore[no-untyped-def]
    """Return z, for covariances that are matrices or diagonals."""
    if one.ndim == 1:
        return step / ((1 - t) * one + t * two)
    return np.linalg.solve((1 - t) * one + t * two, step)


@njit(cache=True, nogil=True)
def _times(covariance, z):  # type: ignore[no-untyped-def]
    """Return S z."""
    if covariance.ndim == 1:
        return covariance * z
    return covariance @ z


@njit(cache=True, nogil=True)
def _distances(t, step, one, two):  # type: ignore[no-untyped-def]
    """Return the distances of x(t) from the two centres."""
    z = _direction(t, step, one, two)
    first, second = (z * _times(one, z)).sum(), (z * _times(two, z)).sum()
    return (1 - t) * np.sqrt(first), t * np.sqrt(second)


@njit(cache=True, nogil=True)
def _crossing(step, one, two, own, other, level):  # type: ignore[no-untyped-def]
    """Return the t at which own * d_1 - other * d_2, which falls with t, equals a level.

    By the Illinois variant of regula falsi; for balls of one scale the function is a line, and
    the first step hits. It starts above the level at t = 0 and ends at or below it at t = 1.
    """
    low, high = 0.0, 1.0
    above = own * _distances(low, step, one, two)[0] - level
    below = -other * _distances(high, step, one, two)[1] - level
    tolerance = 1e-13 * (above - below)
    side = 0
    for _ in range(100):
        if below >= 0.0:
            return high
        t = (above * high - below * low) / (above - below)
        first, second = _distances(t, step, one, two)
        value = own * first - other * second - level
        if abs(value) <= tolerance or t <= low or t >= high:
            return t
        if value > 0.0:
            low, above = t, value
            below = 0.5 * below if side == 1 else below
            side = 1
        else:
            high, below = t, value
            above = 0.5 * above if side == -1 else above
            side = -1
    return high


@njit(cache=True, nogil=True)
def _meeting(step, one, two, own_radius, other_radius):  # type: ignore[no-untyped-def]
    """Return the t of the meeting point, or -1 if the ellipsoids are apart."""
    first, second = _distances(0.5, step, one, two)
    if first <= own_radius and second <= other_radius:
        return 0.5
    if first > own_radius and second > other_radius:
        return -1.0
    # On from x(1/2) towards the centre that is too far, until its ellipsoid begins.
    if first > own_radius:
        t = _crossing(step, one, two, 1.0, 0.0, own_radius)
        return t if _distances(t, step, one, two)[1] <= other_radius else -1.0
    t = _crossing(step, two, one, 1.0, 0.0, other_radius)
    return 1 - t if _distances(t, step, two, one)[1] <= own_radius else -1.0


@njit(cache=True, nogil=True)
def meetings(means, covariances, radii, first, second):  # type: ignore[no-untyped-def]
    """Return for each listed pair the t of its meeting point, or -1 if it is apart."""
    found = np.empty(len(first))
    for e in range(len(first)):
        i, p = first[e], second[e]
        found[e] = _meeting(means[p] - means[i], covariances[i], covariances[p], radii[i], radii[p])
    return found


@njit(cache=True, nogil=True)
def contacts(means, covariances, radii, first, second):  # type: ignore[no-untyped-def]
    """Return for each listed pair the factor on both radii at which its ellipsoids touch.

    For balls of one scale it is the distance of the centres in units of both radii.
    """
    found = np.zeros(len(first))
    for e in range(len(first)):
        i, p = first[e], second[e]
        step, one, two = means[p] - means[i], covariances[i], covariances[p]
        if np.any(step != 0.0):
            t = _crossing(step, one, two, radii[p], radii[i], 0.0)
            own, other = _distances(t, step, one, two)
            total = radii[i] + radii[p]
            found[e] = (own + other) / total if total > 0.0 else np.inf
    return found


@njit(cache=True, nogil=True)
def add_steps(means, covariances, first, second, t, sums, sizes):  # type: ignore[no-untyped-def]
    """Add the steps to the meeting point of each listed pair to the sets T of both components."""
    for e in range(len(first)):
        i, p = first[e], second[e]
        one, two = covariances[i], covariances[p]
        z = _direction(t[e], means[p] - means[i], one, two)
        sums[i] += (1 - t[e]) * _times(one, z)
        sums[p] -= t[e] * _times(two, z)
        sizes[i] += 1
        sizes[p] += 1


def bounding_balls(means: Array, covariances: Array, radii: Array) -> tuple[Array, Array]:
    """Return balls around ellipsoids, in coordinates in which the ellipsoids are about round.

    Parameters
    ----------
    means : array of shape (C, d)
        The centres.
    covariances : array of shape (C, d, d) or (C, d)
        The metrics.
    radii : array of shape (C,)
        The radii, in these metrics.

    Returns
    -------
    points, reaches : arrays of shape (C, d) and (C,)
        Balls that overlap wherever the ellipsoids do: the mean covariance takes the place of the
        identity, and the largest eigenvalue of each covariance that of all its eigenvalues.

    Examples
    --------
    >>> bounding_balls(np.array([[0.0], [8.0]]), np.array([[4.0], [4.0]]), np.ones(2))[1].round(6)
    array([1., 1.])
    """
    mean, centred = covariances.mean(axis=0), means - means.mean(axis=0)
    if covariances.ndim == 2:
        points = centred / np.sqrt(mean)
        largest = (covariances / mean).max(axis=1)
    else:
        factor = np.linalg.cholesky(mean)
        points = solve_triangular(factor, centred.T, lower=True).T
        inverse = solve_triangular(factor, np.eye(len(factor)), lower=True)
        largest = np.linalg.eigvalsh(inverse @ covariances @ inverse.T)[:, -1]
    # The slack keeps rounding from missing a pair that touches.
    return np.ascontiguousarray(points), (1 + 1e-9) * radii * np.sqrt(largest)

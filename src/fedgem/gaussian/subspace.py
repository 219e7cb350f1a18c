"""The directions that rows vary in, and how finely they are recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgem.gaussian.statistics import Statistics
from fedgem.typing import Array

# Directions that together carry no more of the variance than this are noise to a mixture: they
# cost it parameters and bury what tells clusters apart.
LEFT_OUT = 0.01
# Features whose spreads differ by more than this cannot share a unit; each is taken in its own.
ONE_UNIT = 1e3


@dataclass(frozen=True)
class Subspace:
    """Principal directions of all clients' rows, from their pooled mean and covariance.

    Attributes
    ----------
    centre : array of shape (d,)
        The mean of all rows.
    basis : array of shape (d, r)
        What takes a centred row to its coordinates.
    back : array of shape (r, d)
        What takes coordinates back.
    rest : array of shape (d, d - r)
        What takes a centred row to what the coordinates leave out, in standard deviations.
    rest_covariance : array of shape (d, d)
        The covariance of that.
    log_volume : float
        The logarithm of what coordinates and rest together multiply volumes by.

    Examples
    --------
    >>> import numpy as np
    >>> total = Statistics(np.array([9.0]), np.zeros((1, 2)), np.diag([4.0, 0.01])[None])
    >>> principal(total).basis.shape
    (2, 1)
    """

    centre: Array
    basis: Array
    back: Array
    rest: Array
    rest_covariance: Array
    log_volume: float

    def project(self, X: Array) -> Array:
        """Return the coordinates of rows."""
        return np.asarray((X - self.centre) @ self.basis)

    def log_rest(self, X: Array) -> Array:
        """Return what the densities of coordinates lack for those of whole rows, as logarithms.

        What the coordinates leave out is one Gaussian, the same for all clusters.
        """
        left_out = (X - self.centre) @ self.rest
        distances = np.square(left_out).sum(axis=1) + left_out.shape[1] * np.log(2 * np.pi)
        return np.asarray(self.log_volume - 0.5 * distances)


def principal(total: Statistics) -> Subspace:
    """Return the principal directions that carry all but `LEFT_OUT` of the variance.

    Parameters
    ----------
    total : Statistics
        All rows as one component with a full covariance.
    """
    assert total.covariances is not None
    covariance = total.covariances[0]
    units = units_of(covariance)
    values, vectors = np.linalg.eigh(covariance / np.outer(units, units))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    # The sign of an eigenvector is anybody's choice; the machine's must not decide the result.
    vectors = vectors * np.where(
        vectors[np.abs(vectors).argmax(axis=0), range(len(units))] < 0, -1, 1
    )
    enough = (1 - LEFT_OUT) * values.sum()
    n = min(int(np.searchsorted(np.cumsum(values), enough)) + 1, len(values))
    # Nothing is known to vary by less than rounding does.
    deviations = np.sqrt(np.maximum(values[n:], np.finfo(np.float64).eps * (values[0] or 1.0)))
    left_out = vectors[:, n:] * units[:, None] * deviations
    return Subspace(
        total.means[0],
        vectors[:, :n] / units[:, None],
        (vectors[:, :n] * units[:, None]).T,
        vectors[:, n:] / units[:, None] / deviations,
        left_out @ left_out.T,
        float(-np.log(units).sum() - np.log(deviations).sum()),
    )


def units_of(covariance: Array) -> Array:
    """Return what to measure each feature in: 1, or its spread where no unit fits all of them.

    Parameters
    ----------
    covariance : array of shape (d, d)
        Of all rows.

    Examples
    --------
    >>> import numpy as np
    >>> units_of(np.diag([4.0, 1e-2])), units_of(np.diag([4.0, 1e-8]))
    (array([1., 1.]), array([2.e+00, 1.e-04]))
    """
    spread = np.sqrt(np.diagonal(covariance))
    varies = spread > 0
    if varies.any() and spread.max() > ONE_UNIT * spread[varies].min():
        return np.where(varies, spread, 1.0)
    return np.ones_like(spread)


def whole(units: Array) -> Subspace:
    """Return the subspace of all features, each measured in its unit.

    Parameters
    ----------
    units : array of shape (d,)
        The units, as in `units_of`.

    Examples
    --------
    >>> import numpy as np
    >>> whole(np.array([1.0, 4.0])).project(np.ones((1, 2)))
    array([[1.  , 0.25]])
    """
    zero = np.zeros((len(units), len(units)))
    back = np.diag(units)
    log_volume = -float(np.log(units).sum())
    return Subspace(zero[0], np.diag(1 / units), back, zero[:, :0], zero, log_volume)


def resolution(X: Array) -> Array:
    """Return the variance that recording hides in each feature: that of rounding to its steps.

    A feature with few values, such as a count or a category, is known only to the distance
    between them; without this variance a component could shrink onto one value and become
    infinitely likely. On a feature whose values all differ it is next to nothing.

    Examples
    --------
    >>> import numpy as np
    >>> resolution(np.array([[0.0], [1.0], [1.0], [2.0]])).round(4)  # 1 / 12
    array([0.0833])
    """
    n_values = np.array([len(np.unique(column)) for column in X.T])
    steps = np.ptp(X, axis=0) / np.maximum(n_values - 1, 1)
    return np.asarray(np.square(steps) / 12)

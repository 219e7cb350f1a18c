"""The components' parameters, for each type of covariance.

Shapes are scikit-learn's: (K, d, d) for "full", (d, d) for "tied", (K, d) for "diag" and (K,)
for "spherical". "identity" has no covariances to store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from fedgem.gaussian.expansion_kernels import factorise
from fedgem.typing import Array

CovarianceType = Literal["full", "tied", "diag", "spherical", "identity"]


@dataclass(frozen=True)
class Gaussians:
    """The parameters of some components, their weights apart.

    Attributes
    ----------
    means : array of shape (K, d)
        The components' means.
    covariances : array, optional
        Their covariances, in the shape of their type; None for identities.
    covariance_type : {"full", "tied", "diag", "spherical", "identity"}
        Whether each component has a matrix of its own, all have one together, each has a variance
        per feature, each has one variance, or all have the identity.

    Examples
    --------
    >>> import numpy as np
    >>> Gaussians(np.zeros((3, 2)), np.ones((3, 2)), "diag").covariances.shape
    (3, 2)
    """

    means: Array
    covariances: Array | None = None
    covariance_type: CovarianceType = "identity"

    def __post_init__(self) -> None:
        expected = covariance_shape(self.covariance_type, *self.means.shape)
        found = None if self.covariances is None else self.covariances.shape
        if found != expected:
            raise ValueError(
                f"Found {self.covariance_type} covariances of shape {found}, expected {expected}."
            )


def covariance_shape(
    covariance_type: CovarianceType, n_components: int, n_features: int
) -> tuple[int, ...] | None:
    """Return the shape of the covariances of a type.

    Examples
    --------
    >>> covariance_shape("tied", 3, 2)
    (2, 2)
    """
    shapes: dict[str, tuple[int, ...] | None] = {
        "full": (n_components, n_features, n_features),
        "tied": (n_features, n_features),
        "diag": (n_components, n_features),
        "spherical": (n_components,),
        "identity": None,
    }
    if covariance_type not in shapes:
        raise ValueError(
            f"Found covariance_type {covariance_type!r}, expected one of {', '.join(shapes)}."
        )
    return shapes[covariance_type]


def matrices(components: Gaussians) -> Array:
    """Return the covariances as (K, d, d), whatever their type.

    Examples
    --------
    >>> import numpy as np
    >>> matrices(Gaussians(np.zeros((1, 2)), np.array([4.0]), "spherical"))
    array([[[4., 0.],
            [0., 4.]]])
    """
    n_components, n_features = components.means.shape
    covariances = components.covariances
    if covariances is None:
        return np.tile(np.eye(n_features), (n_components, 1, 1))
    if components.covariance_type == "full":
        return covariances
    if components.covariance_type == "tied":
        return np.tile(covariances, (n_components, 1, 1))
    variances = covariances if covariances.ndim == 2 else covariances[:, None]
    expanded: Array = variances[:, :, None] * np.eye(n_features)
    return expanded


def per_component(components: Gaussians) -> Array | None:
    """Return the covariances with one for each component: what is tied is repeated.

    Examples
    --------
    >>> import numpy as np
    >>> per_component(Gaussians(np.zeros((3, 1)), np.array([[4.0]]), "tied")).ravel()
    array([4., 4., 4.])
    """
    if components.covariance_type == "tied":
        return matrices(components)
    return components.covariances


def of_components(means: Array, covariances: Array | None) -> Gaussians:
    """Put together what `per_component` took apart; the shape tells the type.

    Examples
    --------
    >>> import numpy as np
    >>> of_components(np.zeros((3, 2)), np.ones((3, 2))).covariance_type
    'diag'
    """
    types: dict[int, CovarianceType] = {0: "identity", 1: "spherical", 2: "diag", 3: "full"}
    return Gaussians(means, covariances, types[0 if covariances is None else covariances.ndim])


def cholesky_factors(components: Gaussians) -> Array:
    """Return the lower Cholesky factors of matrices: (K, d, d) for full, (1, d, d) for tied.

    Examples
    --------
    >>> import numpy as np
    >>> cholesky_factors(Gaussians(np.zeros((3, 1)), np.array([[4.0]]), "tied"))
    array([[[2.]]])
    """
    covariances = np.asarray(components.covariances, np.float64)
    if components.covariance_type == "tied":
        covariances = covariances[None]
    factors = np.empty(covariances.shape)
    for k, covariance in enumerate(covariances):
        try:
            factors[k] = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            raise not_positive_definite(k) from None
    return factors


def _inverse_factors(components: Gaussians) -> Array:
    """Return the inverses of the Cholesky factors; with triangles, that is as good as solving."""
    covariances = np.ascontiguousarray(components.covariances, np.float64)
    covariances = covariances[None] if components.covariance_type == "tied" else covariances
    factors, inverses = np.zeros(covariances.shape), np.empty(covariances.shape)
    failed = factorise(covariances, factors, inverses)
    if failed >= 0:
        raise not_positive_definite(failed)
    return inverses


def not_positive_definite(k: int) -> ValueError:
    """Return the error for a component whose covariance describes no distribution."""
    return ValueError(
        f"The covariance of component {k} is not positive definite: "
        "increase reg_covar, or use fewer components."
    )


def log_determinants(components: Gaussians) -> Array:
    """Return the logarithms of the covariances' determinants, of shape (K,).

    Examples
    --------
    >>> import numpy as np
    >>> log_determinants(Gaussians(np.zeros((1, 3)), np.array([np.e]), "spherical"))
    array([3.])
    """
    n_components, n_features = components.means.shape
    covariances = components.covariances
    if covariances is None:
        return np.zeros(n_components)
    if components.covariance_type in ("full", "tied"):
        diagonals = np.diagonal(cholesky_factors(components), axis1=1, axis2=2)
        logs = 2 * np.log(diagonals).sum(axis=1)
        return np.asarray(np.broadcast_to(logs, n_components))
    if not np.all(covariances > 0):
        raise not_positive_definite(int(np.argwhere(~(covariances > 0))[0, 0]))
    logs = np.log(np.asarray(covariances, np.float64))
    return np.asarray(logs.sum(axis=1) if logs.ndim == 2 else n_features * logs)


def squared_distances(X: Array, components: Gaussians) -> Array:
    """Return the squared Mahalanobis distances of rows from components, of shape (N, K).

    Differences come first, so that they keep their precision wherever the data lies.

    Examples
    --------
    >>> import numpy as np
    >>> squared_distances(np.array([[3.0]]), Gaussians(np.array([[1.0]]), np.ones(1), "spherical"))
    array([[4.]])
    """
    X = np.asarray(X, np.float64)
    means, covariances = components.means, components.covariances
    if components.covariance_type in ("full", "tied"):
        inverses = _inverse_factors(components)
        distances = []
        for k, mean in enumerate(means):
            whitened = (X - mean) @ inverses[min(k, len(inverses) - 1)].T
            distances.append(np.einsum("nd,nd->n", whitened, whitened))
        return np.stack(distances, axis=1)
    if components.covariance_type == "diag" and covariances is not None:
        scaled = zip(means, np.sqrt(covariances), strict=True)
        return np.stack([np.square((X - m) / s).sum(axis=1) for m, s in scaled], axis=1)
    euclidean: Array = cdist(X, means, "sqeuclidean")
    return euclidean if covariances is None else np.asarray(euclidean / covariances)


def squared_distances_to_own(X: Array, components: Gaussians) -> Array:
    """Return the squared Mahalanobis distance of each row from its own component, of shape (K,).

    Parameters
    ----------
    X : array of shape (K, d)
        A row for each component.
    components : Gaussians
        The components.

    Examples
    --------
    >>> import numpy as np
    >>> components = Gaussians(np.zeros((2, 1)), np.array([1.0, 4.0]), "spherical")
    >>> squared_distances_to_own(np.array([[2.0], [2.0]]), components)
    array([4., 1.])
    """
    steps, covariances = X - components.means, components.covariances
    if covariances is None:
        return np.asarray(np.square(steps).sum(axis=1))
    if components.covariance_type in ("full", "tied"):
        whitened = np.linalg.solve(cholesky_factors(components), steps[:, :, None])
        return np.asarray(np.square(whitened).sum(axis=(1, 2)))
    variances = covariances if covariances.ndim == 2 else covariances[:, None]
    return np.asarray((np.square(steps) / variances).sum(axis=1))

"""A fitted shared mixture: what it takes to say which cluster a row belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from fedgem.gaussian.covariances import CovarianceType, Gaussians
from fedgem.gaussian.density import log_joint, log_of
from fedgem.gaussian.mixture import regularised
from fedgem.gaussian.subspace import Subspace
from fedgem.shared import SharedMixture, cluster_moments
from fedgem.typing import Array, IntArray


@dataclass(frozen=True)
class FittedMixture:
    """Clusters of one or several Gaussians each, in the subspace that they were fitted in.

    Attributes
    ----------
    shift, scale : arrays of shape (d,)
        What is taken off each feature, and what the rest is divided by.
    subspace : Subspace
        What scaled rows are taken to.
    components : Gaussians
        The M Gaussians.
    cluster_of : array of shape (M,)
        The cluster of each; clusters are numbered by their rows, the largest first.
    shares : array of shape (M,)
        Each Gaussian's share of its cluster.
    """

    shift: Array
    scale: Array
    subspace: Subspace
    components: Gaussians
    cluster_of: IntArray
    shares: Array

    @property
    def n_clusters(self) -> int:
        """The number of clusters."""
        return int(self.cluster_of.max()) + 1

    def log_densities(self, X: Array) -> Array:
        """Return the logarithm of each cluster's density at each row, of shape (N, K)."""
        scaled = (X.astype(np.float64) - self.shift) / self.scale
        rest = self.subspace.log_rest(scaled) - np.log(self.scale).sum()
        return np.asarray(self.log_densities_at(self.subspace.project(scaled)) + rest[:, None])

    def log_densities_at(self, coordinates: Array) -> Array:
        """Return the same for rows that are given by their coordinates, and in their units."""
        of_parts = log_joint(coordinates, self.components, log_of(self.shares))
        of_clusters = [
            logsumexp(of_parts[:, self.cluster_of == k], axis=1) for k in range(self.n_clusters)
        ]
        return np.stack(of_clusters, axis=1)


def fitted(
    mixture: SharedMixture,
    covariance_type: CovarianceType,
    floor: Array,
    subspace: Subspace,
    shift: Array,
    scale: Array,
) -> tuple[FittedMixture, IntArray, Array, Array]:
    """Return a shared mixture in the features' own units, its clusters in order of size.

    Returns
    -------
    fitted : FittedMixture
        The mixture.
    order : array of shape (K,)
        What the clusters were called before.
    means, covariances : arrays of shape (K, d) and (K, d, d)
        Of the clusters.
    """
    components = regularised(mixture.statistics, covariance_type, floor)
    order = np.argsort(-mixture.cluster_counts.sum(axis=0), kind="stable")
    cluster_of = np.argsort(order)[mixture.cluster_of]
    counts = mixture.statistics.counts + np.finfo(np.float64).tiny
    shares = counts / np.bincount(cluster_of, weights=counts)[cluster_of]
    means, covariances = cluster_moments(components, mixture)
    back = subspace.back
    covariances = back.T @ covariances[order] @ back + subspace.rest_covariance
    return (
        FittedMixture(shift, scale, subspace, components, cluster_of, shares),
        order,
        (means[order] @ back + subspace.centre) * scale + shift,
        covariances * np.outer(scale, scale),
    )

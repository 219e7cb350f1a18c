"""What every fit has to come to, whatever the rows; and rows that are easy to cluster."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal


def assert_sound(model, clients):
    """A fitted model says nothing impossible."""
    n_local = np.bincount(model.components_.owners, minlength=len(model.clients_))
    assert_allclose(model.weights_.sum(axis=1), 1.0)
    assert_array_equal(model.memberships_, model.weights_ > 0)
    if model.n_local_components != "auto":  # guesses bind nobody
        assert model.n_clusters_ >= n_local.max()
        has = n_local > 0  # a client that was away at first has no components of its own
        assert np.all(model.memberships_.sum(axis=1)[has] <= n_local[has])
    assert model.memberships_.any(axis=0).all()
    for found in (model.means_, model.covariances_):
        assert np.isfinite(found).all()
    assert np.linalg.eigvalsh(model.covariances_.astype(np.float64)).min() >= -1e-9 * max(
        1e-300, np.abs(model.covariances_).max()
    )
    first, last = model.n_clusters_interval_
    assert first <= last
    assert_allclose(sum(model.n_clusters_probabilities_.values()), 1.0)
    for g, (name, labels) in enumerate(zip(model.clients_, model.labels_, strict=True)):
        assert labels.shape == (len(clients[name]),)
        assert model.memberships_[g, labels].all()
        assert_array_equal(model.predict(clients[name], client=name), labels)
        assert np.isfinite(model.score_samples(clients[name], client=name)).all()


def separated(clusters, n_rows=60, n_features=3, seed=1, distance=12.0):
    """Rows and their clusters for clients that have these: spheres at the corners of a simplex.

    Parameters
    ----------
    clusters : sequence of sequences of int
        The clusters of each client.
    n_rows : int
        Of each cluster at each client.
    """
    rng = np.random.default_rng(seed)
    centres = np.zeros((max(map(max, clusters)) + 1, n_features))
    for k in range(1, len(centres)):
        centres[k] = (
            distance * ((k - 1) // n_features + 1) * np.eye(n_features)[(k - 1) % n_features]
        )
    rows, truth = {}, {}
    for g, own in enumerate(clusters):
        y = rng.permutation(np.repeat(own, n_rows))
        rows[f"plant-{g}"] = centres[y] + rng.normal(size=(len(y), n_features))
        truth[f"plant-{g}"] = y
    return rows, truth

"""Hypothesis strategies for federations."""

import numpy as np
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)


@st.composite
def rows_and_means(draw):
    """Rows at any scale and offset, with duplicates, and means among or beside them."""
    rng = np.random.default_rng(draw(seeds))
    n_rows, n_features = draw(st.integers(1, 60)), draw(st.integers(1, 6))
    n_components = draw(st.integers(1, 9))
    spread = 10.0 ** draw(st.integers(-3, 3))
    offset = draw(st.sampled_from([0.0, 1.0, -1e4]))
    X = rng.normal(size=(n_rows, n_features)) * spread + offset
    if draw(st.booleans()):
        X = X[rng.integers(n_rows, size=n_rows)]
    means = X[rng.integers(n_rows, size=n_components)]
    if draw(st.booleans()):
        means = means + rng.normal(size=means.shape) * spread
    return X, means


@st.composite
def federations(draw):
    """Components of several clients with uncertainty sets of mixed sizes."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    means = rng.normal(size=(n, d))
    if draw(st.booleans()):
        means = np.round(means)  # coinciding and equally distant means
    squared_radii = rng.exponential(10.0 ** draw(st.integers(-3, 1)), size=n)
    squared_radii[rng.random(n) < 0.2] = 0.0
    owners = rng.integers(draw(st.integers(1, 8)), size=n)
    return means, squared_radii, np.unique(owners, return_inverse=True)[1]


COVARIANCE_TYPES = ["full", "tied", "diag", "spherical", "identity"]


def covariances_of_type(covariance_type, n_components, n_features, rng):
    """Random covariances in the shape of their type."""
    factors = np.eye(n_features) + 0.5 * rng.normal(size=(n_components, n_features, n_features))
    full = factors @ factors.transpose(0, 2, 1)
    full = (full + full.transpose(0, 2, 1)) / 2 + 0.1 * np.eye(n_features)
    return {
        "full": full,
        "tied": full[0],
        "diag": np.einsum("kii->ki", full).copy(),
        "spherical": full[:, 0, 0].copy(),
        "identity": None,
    }[covariance_type]


@st.composite
def small_federations(draw):
    """The rows of a few clients, clustered or not, often degenerate, and how to fit them."""
    rng = np.random.default_rng(draw(seeds))
    n_features = draw(st.integers(1, 4))
    centres = 10.0 ** draw(st.integers(-1, 2)) * rng.normal(size=(4, n_features))
    scale = 10.0 ** rng.integers(-4, 5, size=n_features) if draw(st.booleans()) else 1.0
    offset = draw(st.sampled_from([0.0, 1e5]))
    kind = draw(st.sampled_from(["plain", "rounded", "duplicated", "constant", "collinear"]))
    clients = {}
    for g in range(draw(st.integers(1, 4))):
        n_rows = draw(st.sampled_from([1, 2, 5, 20, 50]))
        has = rng.permutation(4)[: rng.integers(1, 4)]
        X = centres[rng.choice(has, size=n_rows)] + rng.normal(size=(n_rows, n_features))
        if kind == "rounded":
            X = np.round(X)
        elif kind == "duplicated":
            X = X[rng.integers(n_rows, size=n_rows)]
        elif kind == "constant":
            X[:, 0] = 3.0
        elif kind == "collinear":
            X[:, -1] = -2 * X[:, 0]
        X = X * scale + offset
        clients[f"plant-{g}"] = X.astype(np.float32) if draw(st.booleans()) else X
    n_local = "auto"
    if draw(st.booleans()):
        n_local = {name: int(rng.integers(1, min(len(X), 4) + 1)) for name, X in clients.items()}
    return clients, n_local, draw(st.sampled_from(COVARIANCE_TYPES))

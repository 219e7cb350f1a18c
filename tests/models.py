"""Models that several test files fit."""

from fedgem import FedGEM


def collaborative(n_local_components=2, **params):
    """Return a model whose components train together and join by their uncertainty sets."""
    defaults = {"covariance_type": "identity", "learn_weights": False, "upsilon": "auto"}
    return FedGEM(n_local_components, **defaults | params)

"""FedGEM itself, as studies run it."""

from __future__ import annotations

from fedgem.baselines.method import method
from fedgem.estimator import FedGEM


@method("FedGEM", told=("n_local_components",))
def default() -> FedGEM:
    """Return FedGEM as it is, told how many clusters each client has."""
    return FedGEM()


@method("FedGEM, told nothing", told=())
def told_nothing() -> FedGEM:
    """Return FedGEM as it is."""
    return FedGEM()


@method("FedGEM, paper")
def paper() -> FedGEM:
    """Return the paper's algorithm with the paper's upsilon."""
    return FedGEM.paper()

"""Federated clustering: the clusters, their number, and who has which.

The data stays with the clients; only summaries of components cross the wire.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgem.engines.local import LocalEngine as LocalEngine
    from fedgem.errors import InputError as InputError
    from fedgem.errors import StoredFileError as StoredFileError
    from fedgem.estimator import FedGEM as FedGEM
    from fedgem.scaling import FederatedScaler as FederatedScaler

__version__ = "0.1.0"

_HOMES = {
    "FedGEM": "fedgem.estimator",
    "FederatedScaler": "fedgem.scaling",
    "InputError": "fedgem.errors",
    "LocalEngine": "fedgem.engines.local",
    "StoredFileError": "fedgem.errors",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import public names on first use: `import fedgem` itself stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedgem' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

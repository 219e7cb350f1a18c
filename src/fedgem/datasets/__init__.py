"""Data sets that are spread over clients, with the truth about their clusters."""

from fedgem.datasets.blobs import FederatedBlobs, make_federated_blobs
from fedgem.datasets.fleet import Fleet, make_fleet
from fedgem.datasets.partition import FederatedSplit, partition

__all__ = [
    "FederatedBlobs",
    "FederatedSplit",
    "Fleet",
    "make_federated_blobs",
    "make_fleet",
    "partition",
]

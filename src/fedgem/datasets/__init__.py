"""Data sets that are spread over clients, with the truth about their clusters."""

from fedgem.datasets.blobs import FederatedBlobs, make_federated_blobs
from fedgem.datasets.fleet import Fleet, make_fleet

__all__ = ["FederatedBlobs", "Fleet", "make_federated_blobs", "make_fleet"]

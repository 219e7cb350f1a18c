"""Data sets that are spread over clients, with the truth about their clusters."""

from fedgem.datasets.blobs import FederatedBlobs, make_federated_blobs
from fedgem.datasets.fleet import Fleet, make_fleet
from fedgem.datasets.loading import Dataset, load_dataset
from fedgem.datasets.openml import load_openml
from fedgem.datasets.partition import (
    FederatedSplit,
    partition,
    partition_by_class,
    partition_by_column,
    partition_by_size,
    partition_dirichlet,
)
from fedgem.datasets.sources import DATASET_NAMES

__all__ = [
    "DATASET_NAMES",
    "Dataset",
    "FederatedBlobs",
    "FederatedSplit",
    "Fleet",
    "load_dataset",
    "load_openml",
    "make_federated_blobs",
    "make_fleet",
    "partition",
    "partition_by_class",
    "partition_by_column",
    "partition_by_size",
    "partition_dirichlet",
]

"""Speed of the default fit, whole, in the paper's settings of two image data sets.

Run it with `python benchmarks/model.py` (about two minutes on two cores). Each figure is the median
of `REPEATS` fits with K_g given.
"""

from __future__ import annotations

import warnings

import numpy as np

import measuring
from accuracy_data import DATA_SETS
from fedgem import FedGEM
from measuring import row, show

REPEATS = 3


def whole_fit(name: str, target: float) -> None:
    """Time the fit of one data set."""
    split, _ = DATA_SETS[name].draw(0)
    n_local = {client: len(np.unique(y)) for client, y in split.train_labels.items()}

    def fit() -> None:
        FedGEM(n_local, random_state=0).fit(split.train)

    fit()
    (spent,) = measuring.medians(fit, repeats=REPEATS)
    row(f"FedGEM() on {name}, {len(n_local)} clients", spent, target, "s", at_least=False)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    whole_fit("mnist", 5)
    whole_fit("fashion-mnist", 20)
    show("fedgem model")

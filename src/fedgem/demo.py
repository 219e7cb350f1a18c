"""The demonstration: a simulated fleet, fitted from files as anyone's own, beside the truth."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from fedgem.datasets import Fleet, make_fleet
from fedgem.engines.engine import Engine
from fedgem.runs import Options, Run, describe, fit_files
from fedgem.typing import IntArray
from fedgem.writing import appearing, write_table

CONTENTS = ("plants", "run", "truth.csv")


def simulate(folder: Path, n_plants: int, seed: int) -> Fleet:
    """Write a simulated fleet: a CSV file for each plant, and beside them what is true of it.

    Parameters
    ----------
    folder : path
        The folder to make.
    n_plants : int
        The number of plants.
    seed : int
        The same seed gives the same fleet.
    """
    (folder / "plants").mkdir(parents=True)
    fleet = make_fleet(n_plants, random_state=seed)
    for plant, X in fleet.clients.items():
        rows = np.round(X, 4).tolist()
        write_table(folder / "plants" / f"{plant}.csv", fleet.feature_names, rows)
    write_table(
        folder / "truth.csv",
        ["client", "row", "mode"],
        (
            [plant, row, fleet.mode_names[mode]]
            for plant, modes in fleet.modes.items()
            for row, mode in enumerate(modes)
        ),
    )
    return fleet


def fit_arguments(folder: Path, out: Path, seed: int) -> str:
    """Return the arguments of `fedgem` that fit the files of `simulate`."""
    there = shlex.quote(str(folder))
    return f"fit {there}/plants/*.csv --out {shlex.quote(str(out))} --seed {seed}"


def compare(run: Run, fleet: Fleet) -> dict[str, Any]:
    """Hold what was found against the truth.

    A cluster stands for the mode that most of its rows have.

    Parameters
    ----------
    run : Run
        The fit.
    fleet : Fleet
        The truth.
    """
    model = run.model
    truth = np.concatenate([fleet.modes[name] for name in model.clients_])
    found = np.concatenate(list(model.labels_))
    modes = np.arange(len(fleet.mode_names))
    rows: IntArray = np.zeros((model.n_clusters_, len(modes)), dtype=np.intp)
    np.add.at(rows, (found, truth), 1)
    stands_for = rows.argmax(axis=1)
    has = np.array([np.isin(modes, fleet.modes[name]) for name in model.clients_])
    has_found = np.array([np.isin(modes, stands_for[own]) for own in model.memberships_])
    return {
        "n_modes": len(np.unique(truth)),
        "adjusted_rand_index": float(adjusted_rand_score(truth, found)),
        "rows_right": float(np.mean(stands_for[found] == truth)),
        "memberships": has.size,
        "memberships_right": int(np.sum(has == has_found)),
        "modes": [
            {
                "cluster": k,
                "mode": fleet.mode_names[mode],
                "rows": int(rows[k].sum()),
                "rows_right": float(rows[k, mode] / max(1, rows[k].sum())),
                "plants": int(model.memberships_[:, k].sum()),
                "plants_truly": int(has[:, mode].sum()),
            }
            for k, mode in enumerate(stands_for)
        ],
        "not_found": [fleet.mode_names[mode] for mode in np.setdiff1d(truth, stands_for)],
    }


def run_demo(out: Path, n_plants: int, seed: int, engine: Engine, *, force: bool) -> dict[str, Any]:
    """Simulate, fit, compare, and return all there is to say, ready for JSON.

    Parameters
    ----------
    out : path
        The folder to write, whole or not at all.
    n_plants : int
        The number of plants.
    seed : int
        Decides every random choice.
    engine : Engine
        What carries the messages.
    force : bool
        Whether an earlier demonstration there may be replaced.
    """
    with appearing(out, CONTENTS, force=force) as folder:
        fleet = simulate(folder, n_plants, seed)
        run = fit_files(
            [folder / "plants" / f"{plant}.csv" for plant in fleet.clients],
            folder / "run",
            Options(seed=seed),
            command=f"fedgem {fit_arguments(out, out / 'run', seed)}",
            engine=engine,
        )
    there = shlex.quote(str(out))
    fedgem = "fedgem" if shutil.which("fedgem") else shlex.quote(sys.argv[0])
    return describe(run) | {
        "out": str(out),
        "truth": compare(run, fleet),
        "next": [
            f"{fedgem} {fit_arguments(out, Path('my-run'), seed)}",
            f"{fedgem} show my-run",
            f"{fedgem} predict my-run {there}/plants/plant-01.csv --client plant-01",
        ],
    }

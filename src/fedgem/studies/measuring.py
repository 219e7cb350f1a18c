"""Measuring: one task is one method on one case with one seed, and gives one row."""

from __future__ import annotations

import importlib.util
import multiprocessing
import platform
import signal
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import scipy
import sklearn
from sklearn.metrics import adjusted_rand_score, silhouette_score
from threadpoolctl import threadpool_limits

import fedgem
from fedgem.base import FederatedClusterer
from fedgem.baselines import METHODS, Entry
from fedgem.datasets import FederatedSplit
from fedgem.engines.local import LocalEngine
from fedgem.errors import InputError
from fedgem.studies.cases import Case
from fedgem.studies.program import PROGRAM
from fedgem.studies.rows import Row
from fedgem.typing import Array, IntArray

SILHOUETTE_ROWS = 5000  # of all clients together; more take minutes and say the same
VERSIONS = (
    f"fedgem {fedgem.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
    f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
)


@dataclass(frozen=True)
class Task:
    """What gives one row."""

    case: Case
    method: str
    seed: int


def candidates() -> dict[str, Entry]:
    """Return all methods that a study may compare, FedGEM first: the list, and the program."""
    known = METHODS | {PROGRAM.name: PROGRAM}
    return {n: known[n] for n in sorted(known, key=lambda n: ("FedGEM" not in n, n != "FedGEM"))}


def declare(path: Path) -> list[str]:
    """Run a Python file that declares methods, and return their names."""
    before = dict(METHODS)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise InputError(f"{path}: found no Python file, expected one that declares a method.")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    new = [name for name, entry in METHODS.items() if before.get(name) is not entry]
    if not new:
        raise InputError(f"{path}: found no method, expected a class under @method('its name').")
    return new


def measure(task: Task, data_dir: Path | None = None) -> Row:
    """Return the row of a task; of one whose method fails, what went wrong."""
    case, entry = task.case, candidates()[task.method]
    split = case.draw(task.seed, data_dir)
    n_clients, n_classes = split.memberships.shape
    row: Row = {
        "data": case.data,
        "x": case.x,
        "method": task.method,
        "seed": task.seed,
        "is_federated": entry.is_federated,
        "n_classes": n_classes,
        "n_clients": n_clients,
        "versions": VERSIONS,
    }
    known = {
        "n_clusters": n_classes,
        "n_local_components": dict(
            zip(split.train, split.memberships.sum(axis=1).tolist(), strict=True)
        ),
        "upsilon": _upsilon(case, entry),
        "engine": LocalEngine(n_jobs=1, participation=case.participation),
        "random_state": task.seed,
    }
    if case.max_iter is not None:
        known["max_iter"] = case.max_iter
    try:
        # One thread: tasks side by side are not to slow each other down.
        with threadpool_limits(1):
            _compile(task.method)
            estimator = entry.informed(**known)
            row["knows"] = _knows(entry, estimator)
            # Of this process, on one core: what else the machine does is no matter of the method.
            begin = time.process_time()
            estimator.fit(split.train)
            row["seconds"] = time.process_time() - begin
            return row | _found(estimator, split, task.seed)
    except Exception as error:  # whatever a method does: it is what the table has to say of it
        return row | {"error": " ".join(f"{type(error).__name__}: {error}".split())}


def scores(
    found: Mapping[str, IntArray],
    truth: Mapping[str, IntArray],
    rows: Mapping[str, Array],
    seed: int = 0,
) -> dict[str, float]:
    """Return ARI and silhouette, local (mean over the clients) and global (over all rows).

    The global silhouette is that of 5,000 rows, where there are more.

    Examples
    --------
    Each client is right on its own, but the two do not agree on what is what:

    >>> found = {"a": np.array([0, 1]), "b": np.array([1, 0])}
    >>> truth = {"a": np.array([0, 1]), "b": np.array([0, 1])}
    >>> scored = scores(found, truth, {"a": np.eye(2), "b": np.eye(2)})
    >>> scored["ari_local"], scored["ari_global"]
    (1.0, -0.5)
    """
    everyone = [np.concatenate([part[name] for name in truth]) for part in (truth, found)]
    X = np.concatenate([rows[name] for name in truth])
    some = np.random.default_rng(seed).permutation(len(X))[:SILHOUETTE_ROWS]
    return {
        "ari_local": float(np.mean([adjusted_rand_score(truth[g], found[g]) for g in truth])),
        "ari_global": float(adjusted_rand_score(*everyone)),
        "silhouette_local": float(np.mean([_silhouette(rows[g], found[g]) for g in truth])),
        "silhouette_global": _silhouette(X[some], everyone[1][some]),
    }


def measure_all(
    tasks: Sequence[Task], *, jobs: int, data_dir: Path | None, files: Sequence[Path]
) -> Generator[Row]:
    """Give the row of every task, as soon as it is there.

    One job runs in this process; several, each in one of its own. Those that are at work when
    the caller goes no further are stopped.

    Parameters
    ----------
    tasks : sequence of Task
        What to measure.
    jobs : int
        How many tasks run side by side, each on one thread.
    data_dir : path, optional
        The folder of data sets.
    files : sequence of path
        Python files that declare methods.
    """
    if jobs == 1:
        for task in tasks:
            yield measure(task, data_dir)
        return
    with _processes(jobs, files) as pool:
        futures = [pool.submit(measure, task, data_dir) for task in tasks]
        for future in as_completed(futures):
            try:
                row = future.result()
            except BrokenProcessPool as error:
                raise InputError(
                    "A process ended without an answer, as one does that runs out of memory; what "
                    "is measured is kept. Go on with the same command and fewer --jobs."
                ) from error
            yield row


@contextmanager
def _processes(jobs: int, files: Sequence[Path]) -> Iterator[ProcessPoolExecutor]:
    """Start processes, which do not outlive the block."""
    # New processes rather than forks: those of a process whose BLAS has threads may hang.
    spawn = multiprocessing.get_context("spawn")
    before = multiprocessing.active_children()
    pool = ProcessPoolExecutor(jobs, spawn, initializer=_begin, initargs=(files,))
    try:
        yield pool
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in before:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(files: Sequence[Path]) -> None:
    """Prepare a process for its tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process gets it too, and ends this one
    for path in files:
        declare(path)


def _upsilon(case: Case, entry: Entry) -> float | str | tuple[float, ...]:
    """Return what a method is told of upsilon."""
    if entry is PROGRAM:
        return case.upsilons
    # Where the paper tries several, so does FedGEM, and more than those.
    return case.upsilons[0] if len(case.upsilons) == 1 else "auto"


def _knows(entry: Entry, estimator: FederatedClusterer) -> str:
    """Return what the method is told of: K, each client's K_g, both or neither."""
    words = {"n_clusters": "K", "n_local_components": "K_g"}
    parameters = set(estimator.get_params(deep=False)) & set(entry.told)
    return ", ".join(word for name, word in words.items() if name in parameters)


def _found(estimator: FederatedClusterer, split: FederatedSplit, seed: int) -> Row:
    """Return what a fitted method found, its scores on the test rows, and what was sent."""
    # A client that never answered is not known.
    found = {
        name: estimator.predict(X, client=name if name in estimator.clients_ else None)
        for name, X in split.test.items()
    }
    history = getattr(estimator, "history_", ())
    n_clusters = int(estimator.n_clusters_)
    return {
        "n_clusters": n_clusters,
        "miscount": abs(n_clusters - split.memberships.shape[1]),
        **scores(found, split.test_labels, split.test, seed),
        "n_rounds": len(history),
        "bytes_up": sum(sum(r.bytes_up.values()) for r in history),
        "bytes_down": sum(sum(r.bytes_down.values()) for r in history),
        "error": None,
    }


def _silhouette(rows: Array, labels: IntArray) -> float:
    """Return the silhouette; one cluster, or every row its own, has none and counts as 0."""
    if 1 < len(np.unique(labels)) < len(labels):
        return float(silhouette_score(rows, labels))
    return 0.0


@cache
def _compile(method: str) -> None:
    """Fit something small: the seconds of the first fit are not to hold those of compilation."""
    rng = np.random.default_rng(0)
    known = {"n_clusters": 2, "n_local_components": 2, "upsilon": 1.0, "random_state": 0}
    rows = [rng.normal(size=(50, 2)) + 9 * (np.arange(50) % 2)[:, None] for _ in range(3)]
    candidates()[method].informed(**known).fit(rows)

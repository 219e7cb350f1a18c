"""A run on disk: the folder that `fedgem fit` writes and the other commands read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedgem import __version__, checkpoints, storage
from fedgem.engines.engine import Engine
from fedgem.errors import InputError, StoredFileError
from fedgem.estimator import FedGEM
from fedgem.files import Source, open_source
from fedgem.inputs import check
from fedgem.typing import Array, IntArray
from fedgem.writing import Columns, appearing, lines_of, refuse_existing, write_table

# What a run's folder holds, and so what may be deleted to make room for a new one.
CONTENTS = ("model.npz", "run.json", "clusters.csv", "members.csv", "history.csv", "labels")
N_TELLING = 3  # features that tell a cluster apart


@dataclass(frozen=True)
class Options:
    """What a fit was asked for; the ``settings`` of ``run.json``."""

    clusters_per_client: int | str | list[int] | dict[str, int] = "auto"
    upsilon: float | str | None = None
    scale: bool = True
    seed: int = 0
    columns: list[str] | None = None
    id_column: str | None = None


@dataclass(frozen=True)
class Run:
    """A fitted model and what is known of how it came about.

    Attributes
    ----------
    model : FedGEM
        The model, of ``model.npz``.
    about : dict
        The content of ``run.json``; its ``members`` are, for each client, the rows that each
        cluster got, None where the client does not have the cluster.
    """

    model: FedGEM
    about: dict[str, Any]

    @property
    def counts(self) -> IntArray:
        """The rows of each client in each cluster, an array of shape (G, K)."""
        members = self.about["members"]
        rows = [[n or 0 for n in members[name]] for name in self.model.clients_]
        return np.array(rows, dtype=np.intp)


def open_clients(files: Iterable[Path], options: Options) -> dict[str, Source]:
    """Open a file for each client; the clients take the names of their files."""
    paths: dict[str, Path] = {}
    sources = {}
    for path in files:
        if path.stem in paths:
            raise InputError(
                f"{paths[path.stem]} and {path}: found two clients called {path.stem!r}, "
                "expected file names that differ."
            )
        paths[path.stem] = path
        sources[path.stem] = open_source(path, options.columns, options.id_column)
    return sources


def fit_files(
    files: Sequence[Path],
    out: Path,
    options: Options,
    *,
    command: str,
    engine: Engine,
    force: bool = False,
) -> Run:
    """Fit a file for each client and write the run's folder, whole or not at all.

    After every round the training is saved beside the folder. A fit that was stopped goes on
    from there when it is started again.

    Parameters
    ----------
    files : sequence of paths
        The clients' files.
    out : path
        The folder to write.
    options : Options
        How to fit.
    command : str
        What the user typed, for the record.
    engine : Engine
        What carries the messages.
    force : bool
        Whether a run that is already there may be replaced.
    """
    refuse_existing(out, CONTENTS, force=force)
    sources = open_clients(files, options)
    checkpoint = checkpoint_of(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    model = asked_for(options, engine).fit(sources, checkpoint=checkpoint)
    labels = dict(zip(model.clients_, model.labels_, strict=True))
    counts = {
        name: np.bincount(own, minlength=model.n_clusters_).tolist() for name, own in labels.items()
    }
    run = Run(model, about_run(model, options, command, counts))
    with appearing(out, CONTENTS, force=force) as folder:
        (folder / "labels").mkdir(parents=True)
        for name, own in labels.items():
            columns = about_rows(sources[name], cluster=own)
            write_table(folder / "labels" / f"{name}.csv", columns, lines_of(columns))
        write_run(folder, run)
    checkpoint.unlink(missing_ok=True)
    return run


def asked_for(options: Options, engine: Engine) -> FedGEM:
    """Return the model that the options ask for."""
    return FedGEM(
        options.clusters_per_client,
        upsilon=options.upsilon,
        scale=options.scale,
        engine=engine,
        random_state=options.seed,
    )


def about_run(
    model: FedGEM, options: Options, command: str, counts: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Return the content of ``run.json``.

    Parameters
    ----------
    model : FedGEM
        What was found.
    options : Options
        What was asked for.
    command : str
        What the user typed.
    counts : dict of str to sequence of int
        How many of each client's rows each cluster got.
    """
    settings = asdict(options)
    if options.upsilon is None:
        del settings["upsilon"]
    return {
        "fedgem": __version__,
        "command": command,
        "settings": settings,
        "members": {
            # None stands for a cluster that the client does not have.
            name: [n if it_has else None for n, it_has in zip(counts[name], has, strict=True)]
            for name, has in zip(model.clients_, model.memberships_, strict=True)
        },
    }


def checkpoint_of(out: Path) -> Path:
    """Return where the training of a run is saved until the run is done."""
    out = out if out.name else out.resolve()  # "." has no name
    return out.with_name(f"{out.name}.checkpoint")


def where_it_stopped(out: Path) -> str:
    """Say in a sentence how far a stopped fit had come."""
    checkpoint = checkpoint_of(out)
    if not checkpoint.exists():
        return "Stopped before the first round was over; nothing was written."
    last = storage.load(checkpoint, checkpoints.FORMAT)["training"].history[-1]
    return f"Stopped after round {last.round}. The same command goes on from there."


def read_run(folder: Path) -> Run:
    """Read what `fit_files` wrote.

    Parameters
    ----------
    folder : path
        The run's folder.
    """
    model, path = read_model(folder), folder / "run.json"
    try:
        run = Run(model, json.loads(path.read_text("utf-8")))
        if run.counts.shape != model.weights_.shape:
            raise ValueError("It is another run's.")
    except (ValueError, KeyError, TypeError) as error:
        raise StoredFileError(f"{path} is damaged or does not belong to its model.npz.") from error
    return run


def read_model(folder: Path) -> FedGEM:
    """Read the model of a run's folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: found no such folder, expected one written by fedgem fit.")
    return FedGEM.load(folder / "model.npz")


def predict(
    model: FedGEM, path: Path, client: str | None, id_column: str | None
) -> tuple[Source, IntArray, Array]:
    """Return a file's rows, and the cluster of each with its probability.

    Parameters
    ----------
    model : FedGEM
        The model; a file's columns are found by the names it knows.
    path : path
        The file; it may be larger than memory.
    client : str, optional
        Whose weights to use; all clients' by default.
    id_column : str, optional
        A column that names the rows.
    """
    names: list[str] | None = list(getattr(model, "feature_names_in_", [])) or None
    has_names = path.suffix.lower() not in (".npy", ".npz")
    source = open_source(path, names if has_names else None, id_column)
    if source.rows.shape[1] != model.n_features_in_:
        raise InputError(
            f"{path}: found {source.rows.shape[1]} columns, expected the {model.n_features_in_} "
            "of the model."
        )
    check({source.name: (source.rows, source.feature_names)})
    clusters, probabilities = [], []
    for block in source.rows.blocks():
        probability = model.predict_proba(block, client)
        clusters.append(probability.argmax(axis=1))
        probabilities.append(probability.max(axis=1))
    return source, np.concatenate(clusters), np.concatenate(probabilities)


def describe(run: Run) -> dict[str, Any]:
    """Return all there is to say about a run, ready for JSON.

    What tells a cluster apart are the features whose means lie farthest from the mean of all
    rows. Distances are in standard deviations within clusters (``sd``).
    """
    model, counts = run.model, run.counts
    names = feature_names(model)
    rows = counts.sum(axis=0)
    variances = np.diagonal(model.covariances_, axis1=1, axis2=2)
    spread = np.sqrt(np.average(variances, axis=0, weights=rows))
    away = model.means_ - np.average(model.means_, axis=0, weights=rows)
    sd = np.divide(away, spread, out=np.zeros_like(away), where=spread > 0)
    # What only one of the two ways to fit says.
    found: dict[str, Any] = {}
    if hasattr(model, "n_clusters_interval_"):
        found["n_clusters_interval"] = list(model.n_clusters_interval_)
    if hasattr(model, "upsilon_"):
        found["upsilon"] = model.upsilon_
    return run.about | {
        "n_clients": len(counts),
        "n_rows": int(rows.sum()),
        "n_components": len(model.component_labels_),
        "n_clusters": model.n_clusters_,
        "n_rounds": model.n_iter_,
        "converged": model.converged_,
        **found,
        "scaled": model.scale,
        "clusters": [
            {
                "cluster": k,
                "rows": int(rows[k]),
                "share": float(rows[k] / rows.sum()),
                "clients": [c for c, has in zip(model.clients_, has_it, strict=True) if has],
                "means": dict(zip(names, model.means_[k].tolist(), strict=True)),
                "apart": [
                    {"feature": names[j], "sd": float(sd[k, j]), "mean": float(model.means_[k, j])}
                    for j in np.argsort(-np.abs(sd[k]), kind="stable")[:N_TELLING]
                ],
            }
            for k, has_it in enumerate(model.memberships_.T)
        ],
    }


def feature_names(model: FedGEM) -> list[str]:
    """Return the names of the model's features; columns without a name are called by number."""
    numbered = [f"column {j}" for j in range(model.n_features_in_)]
    return [str(name) for name in getattr(model, "feature_names_in_", numbered)]


def about_rows(source: Source, **columns: np.ndarray[Any, Any]) -> Columns:
    """Return columns about a client's rows after one that names each row: its id, or its number."""
    if source.ids is None:
        return {"row": np.arange(source.rows.shape[0])} | columns
    whole = source.ids.dtype.kind in "iu"
    return {"id": source.ids if whole else source.ids.astype(str)} | columns


def write_run(folder: Path, run: Run) -> None:
    """Write all of a run but its labels."""
    model, description = run.model, describe(run)
    model.save(folder / "model.npz")
    (folder / "run.json").write_text(json.dumps(run.about, indent=2) + "\n", "utf-8")
    write_table(
        folder / "clusters.csv",
        ["cluster", "rows", "share", "clients", *feature_names(model)],
        (
            [c["cluster"], c["rows"], c["share"], len(c["clients"]), *c["means"].values()]
            for c in description["clusters"]
        ),
    )
    write_table(
        folder / "members.csv",
        ["client", *(f"cluster_{k}" for k in range(model.n_clusters_))],
        (
            [name, *("" if n is None else n / sum(filter(None, own)) for n in own)]
            for name, own in run.about["members"].items()
        ),
    )
    write_table(
        folder / "history.csv",
        ["round", "objective", "n_clusters", "bytes_up", "bytes_down", "seconds"],
        (
            [
                r.round,
                r.objective,
                r.n_clusters,
                sum(r.bytes_up.values()),
                sum(r.bytes_down.values()),
                r.seconds,
            ]
            for r in model.history_
        ),
    )

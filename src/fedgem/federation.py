"""A whole run of a federation of processes: the server's side, and the client's end of it."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from fedgem import runs, wire
from fedgem.engines.remote import RemoteEngine
from fedgem.errors import WireError
from fedgem.estimator import FedGEM
from fedgem.files import Source
from fedgem.messages import ModelRequest
from fedgem.runs import Options, Run
from fedgem.server import Round
from fedgem.typing import IntArray
from fedgem.writing import appearing, lines_of, refuse_existing, write_table

PATIENCE = 120.0  # seconds that clients have to take their models, where rounds have no end
# What a client's folder holds at the end.
OWN_CONTENTS = ("model.npz", "labels.csv")
# What tells of all clients, and none of them needs.
OF_ALL = ("history_", "merge_tree_", "upsilon_scores_")


def fit_clients(engine: RemoteEngine, out: Path, options: Options, *, command: str) -> Run:
    """Fit the clients that an engine reaches, send each its model, and write the run's folder.

    After every round the training is saved beside the folder. A run that was stopped goes on
    from there when it is started again.

    Parameters
    ----------
    engine : RemoteEngine
        What reaches the clients.
    out : path
        The folder to write.
    options : Options
        How to fit.
    command : str
        What the user typed, for the record.
    """
    refuse_existing(out, runs.CONTENTS, force=False)
    checkpoint = runs.checkpoint_of(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        engine.say(f"Going on from {checkpoint}.")

    def progress(row: Round) -> None:
        engine.say(
            f"Round {row.round}: {row.n_clusters} clusters, {len(row.bytes_up)} clients, "
            f"{row.seconds:.1f} s."
        )

    model = runs.asked_for(options, engine).fit(checkpoint=checkpoint, callbacks=[progress])
    counts = give_models(engine, model)
    about = runs.about_run(model, options, command, counts)
    about["refusals"] = [asdict(refusal) for refusal in engine.refusals]
    run = Run(model, about)
    with appearing(out, runs.CONTENTS, force=False) as folder:
        folder.mkdir(parents=True)
        runs.write_run(folder, run)
    checkpoint.unlink(missing_ok=True)
    engine.say(f"Done: {model.n_clusters_} clusters, in {out}.")
    return run


def give_models(engine: RemoteEngine, model: FedGEM) -> dict[str, list[int]]:
    """Send each client its own model, and return how many of its rows each cluster got.

    For a client that does not answer any more, what its weights make of its number of rows.
    """
    asked = {
        name: (ModelRequest(_as_bytes(own_model(model, name))), None) for name in model.clients_
    }
    patience = engine.round_timeout or PATIENCE
    replies = engine.exchange(asked, min_clients=0, timeout=patience)  # the run needs none of them
    expected = np.rint(model.weights_ * model.components_.n_rows[:, None]).astype(np.intp)
    counts = dict(zip(model.clients_, expected, strict=True))
    counts |= {name: reply.counts for name, reply in replies.items()}
    return {name: own.tolist() for name, own in counts.items()}


def own_model(model: FedGEM, client: str) -> FedGEM:
    """Return a model as one client may have it: the shared clusters, and its own weights alone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> model = FedGEM(random_state=0).fit({"a": rng.normal(size=(50, 1)), "b": np.eye(9)[:, :1]})
    >>> own_model(model, "a").clients_
    ('a',)
    """
    own, g = copy(model), model.clients_.index(client)
    parts = model.components_
    mine = parts.owners == g
    covariances = parts.covariances
    if covariances is not None and len(covariances) == len(mine):
        covariances = covariances[mine]
    own.components_ = replace(
        parts,
        names=(client,),
        owners=np.zeros(int(mine.sum()), parts.owners.dtype),
        means=parts.means[mine],
        weights=parts.weights[mine],
        counts=parts.counts[mine],
        n_rows=parts.n_rows[[g]],
        covariances=covariances,
    )
    own.component_labels_ = model.component_labels_[mine]
    own.clients_ = (client,)
    own.weights_, own.memberships_ = model.weights_[[g]], model.memberships_[[g]]
    if hasattr(model, "reliance_"):
        own.reliance_ = model.reliance_[[g]]
        own.own_components_ = {n: c for n, c in model.own_components_.items() if n == client}
    # What a user may have given for each client by name.
    own.n_local_components, own.weights, own.final_radius = "auto", None, None
    if own.upsilon is None and model.final_radius is not None:
        own.upsilon = model.upsilon_  # says the same: the paper's way
    for name in OF_ALL:
        if hasattr(own, name):
            delattr(own, name)
    return own


def keeper(source: Source, out: Path | None) -> Callable[[bytes], list[int]]:
    """Return what a client does with its model: it labels its rows, and writes both to a folder.

    Parameters
    ----------
    source : Source
        The client's rows.
    out : path, optional
        The folder; what an earlier run wrote there is replaced. Nothing is written without one.
    """
    if out is not None:
        refuse_existing(out, OWN_CONTENTS, force=True)

    def keep(data: bytes) -> list[int]:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(part.file_size for part in archive.infolist()) > wire.MOST_BYTES:
                raise WireError("a model that is too large")
        model = FedGEM.load(io.BytesIO(data))
        labels: IntArray = model._predict_rows(source.rows, source.name)
        if out is not None:
            with appearing(out, OWN_CONTENTS, force=True) as folder:
                folder.mkdir(parents=True)
                (folder / "model.npz").write_bytes(data)
                columns = runs.about_rows(source, cluster=labels)
                write_table(folder / "labels.csv", columns, lines_of(columns))
        counts: list[int] = np.bincount(labels, minlength=model.n_clusters_).tolist()
        return counts

    return keep


def _as_bytes(model: FedGEM) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        model.save(path)
        return path.read_bytes()

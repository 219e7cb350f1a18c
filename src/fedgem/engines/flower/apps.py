"""The two apps that `flwr run` starts: a ServerApp and a ClientApp of Flower."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedgem.engines.answering import Answering
from fedgem.engines.flower import FlowerEngine, packed, unpacked
from fedgem.federation import fit_clients, keeper
from fedgem.files import open_source
from fedgem.runs import Options

server_app = ServerApp()
client_app = ClientApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation as the run config says."""
    config = context.run_config
    names = [name for name in str(config["clients"]).split(",") if name]
    engine = FlowerEngine(
        grid,
        clients=names or None,
        expect=int(config["expect"]) or None,
        min_clients=int(config["min-clients"]) or None,
        round_timeout=float(config["round-timeout"]) or None,
        say=say,
    )
    options = Options(
        clusters_per_client=json.loads(str(config["clusters-per-client"])),
        upsilon=json.loads(str(config["upsilon"])),
        scale=bool(config["scale"]),
        seed=int(config["seed"]),
    )
    fit_clients(engine, Path(str(config["out"])), options, command=str(config["command"]))


@client_app.query()
def query(message: Message, context: Context) -> Message:
    """Answer one request from the rows of the file that the node config names."""
    config = context.node_config
    if "file" in config:
        path, name = Path(str(config["file"])), str(config.get("name", ""))
    else:  # a node of a simulation: one of the files in a folder that the run config names
        files = sorted(Path(str(context.run_config["files"])).iterdir())
        path, name = files[int(config["partition-id"])], ""
    out = Path(str(config["out"])) if "out" in config else None
    answer = answering(path, name, out)
    return Message(packed(answer(unpacked(message.content))), reply_to=message)


@cache
def answering(path: Path, name: str = "", out: Path | None = None) -> Answering:
    """Return what answers for a file; a process opens and checks it once."""
    source = open_source(path)
    source = replace(source, name=name or source.name)
    return Answering(source, keeper(source, out))


def say(text: str) -> None:
    """Print a sentence, at once."""
    print(text, flush=True)

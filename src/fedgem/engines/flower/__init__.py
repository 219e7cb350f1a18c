"""The engine that runs on Flower: its nodes carry the bytes, in simulation and in deployment.

Needs the extra ``fedgem[flower]``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedgem.engines.answering import Answering
from fedgem.engines.remote import Clock, Delivery, Node, RemoteEngine
from fedgem.estimator import FedGEM
from fedgem.files import Source
from fedgem.inputs import collect

RECORD, FIELD = "fedgem", "message"  # where a record dictionary holds the bytes


class FlowerEngine(RemoteEngine):
    """Run a federation whose clients are nodes of Flower.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        What a ServerApp is given.
    **params
        As in `fedgem.engines.remote.RemoteEngine`: `clients`, `expect`, `min_clients`,
        `round_timeout` and `say`.
    """

    def __init__(self, grid: Grid, **params: Any) -> None:
        super().__init__(GridTransport(grid), **params)


class GridTransport(Clock):
    """Carries bytes over a grid of Flower, one message each."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def nodes(self) -> list[Node]:
        """Return the nodes that are online."""
        return [
            Node(node.node_id, node.last_activated_at, node.name) for node in self.grid.get_nodes()
        ]

    def send(self, mail: Mapping[Node, bytes], seconds: float | None) -> dict[Node, str]:
        """Push a message to each node; whoever does not fetch it in time never sees it."""
        messages = {
            node: Message(packed(data), node.id, "query", ttl=seconds)
            for node, data in mail.items()
        }
        pushed = set(self.grid.push_messages(list(messages.values())))
        tickets = {node: message.metadata.message_id for node, message in messages.items()}
        return {node: ticket for node, ticket in tickets.items() if ticket in pushed}

    def receive(self, tickets: Collection[str]) -> Iterable[Delivery]:
        """Pull the replies that have come."""
        for message in self.grid.pull_messages(list(tickets)) if tickets else ():
            ticket = message.metadata.reply_to_message_id
            if message.has_error():
                yield Delivery(ticket, None, f"Flower says: {message.error.reason}")
            else:
                yield Delivery(ticket, unpacked(message.content))


def packed(data: bytes) -> RecordDict:
    """Return bytes as what a message of Flower holds."""
    return RecordDict({RECORD: ConfigRecord({FIELD: data})})


def unpacked(content: RecordDict) -> bytes:
    """Return the bytes that a message of Flower holds; none where it holds anything else."""
    record = content.config_records.get(RECORD)
    data = None if record is None else record.get(FIELD)
    return data if isinstance(data, bytes) else b""


def simulate(
    model: FedGEM, X: Any, clients: Any = None, *, num_cpus: float = 1, **params: Any
) -> FedGEM:
    """Fit a model to clients in memory, each a node of Flower's simulation.

    The result is that of ``model.fit(X, clients=clients)`` to the last bit, without `labels_`.

    Parameters
    ----------
    model : FedGEM
        The model; it is fitted and returned.
    X, clients
        As in `FedGEM.fit`.
    num_cpus : float
        How many processors each client takes.
    **params
        Of `FlowerEngine`.
    """
    from flwr.simulation import run_simulation

    inputs = collect(X, clients)
    sources = [Source(name, rows, inputs.feature_names, None) for name, rows in inputs.rows.items()]
    server_app, client_app = ServerApp(), ClientApp()
    before = model.engine

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        model.engine = FlowerEngine(grid, **{"clients": list(inputs.rows)} | params)
        try:
            model.fit()
        finally:
            model.engine = before

    @client_app.query()
    def query(message: Message, context: Context) -> Message:
        answer = Answering(sources[int(context.node_config["partition-id"])])
        return Message(packed(answer(unpacked(message.content))), reply_to=message)

    run_simulation(
        server_app,
        client_app,
        len(sources),
        backend_config={"client_resources": {"num_cpus": num_cpus, "num_gpus": 0.0}},
    )
    return model

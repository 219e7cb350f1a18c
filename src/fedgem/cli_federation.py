"""The commands of a federation over a network: `fedgem keys`, `fedgem server`, `fedgem client`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedgem.errors import InputError

app = typer.Typer()
keys_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(keys_app, name="keys", help="Make keys and certificates for a federation.")

Certificates = Annotated[
    Path | None, typer.Option(help="The folder that fedgem keys new made.", metavar="DIR")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain text and no keys: for trials on one machine.")
]
InsecureNetwork = Annotated[
    bool,
    typer.Option("--insecure-network", help="Allow --insecure to and from other machines, too."),
]


@keys_app.callback()
def _keys() -> None: ...


@keys_app.command(
    name="new",
    epilog="\b\nExample:\n  fedgem keys new keys --host fed.example.com --clients plant-1,plant-2",
)
def new_keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write to.")],
    clients: Annotated[
        str | None, typer.Option(metavar="A,B", help="Make a pair of keys for each client.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Make a server's certificate for this name or address."),
    ] = None,
) -> None:
    """Make a test authority, a server's certificate, and clients' keys.

    A client needs authority.pem and its own .key; the server needs authority.pem, server.pem,
    server.key and the clients' .pub. Whoever has authority.key can pose as the server.
    """
    with _flower_installed():
        from fedgem.keys import new_client_keys, new_server_keys
    if not clients and not host:
        raise InputError("keys new: found neither --host nor --clients, expected one or both.")
    written = new_server_keys(folder, host) if host else []
    if clients:
        written += new_client_keys(folder, [name.strip() for name in clients.split(",")])
    for path in written:
        typer.echo(path)


@app.command(epilog="\b\nExample:\n  fedgem server --certificates keys --expect 12 --out run")
def server(
    expect: Annotated[int, typer.Option(min=1, metavar="N", help="Clients to wait for.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    certificates: Certificates = None,
    host: Annotated[
        str | None,
        typer.Option(help="Where to listen: everywhere by default, with --insecure only here."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen at.")] = 8000,
    min_clients: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="How many replies a round goes on with after --round-timeout; all by default.",
        ),
    ] = None,
    round_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long a round waits for everyone; for good."),
    ] = None,
    clusters_per_client: Annotated[
        str,
        typer.Option(metavar="auto|N|FILE", help="As in fedgem fit."),
    ] = "auto",
    upsilon: Annotated[str | None, typer.Option(metavar="N|auto", help="As in fedgem fit.")] = None,
    scale: Annotated[bool, typer.Option(help="As in fedgem fit.")] = True,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="The same seed, the same result.")
    ] = 0,
    insecure: Insecure = False,
    insecure_network: InsecureNetwork = False,
) -> None:
    """Find the clusters of clients at other places, and write a run's folder.

    Waits for the clients, and ends when each has its model. Ctrl-C stops it; the same command
    then goes on from the last round.
    """
    with _flower_installed():
        from fedgem.engines.flower.processes import ended_by_signals, refuse_plain_text
        from fedgem.engines.flower.serving import serve
    from fedgem import cli, runs

    _check_security(certificates, insecure=insecure)
    host = host or ("127.0.0.1" if insecure else "0.0.0.0")
    refuse_plain_text(host, insecure=insecure, insecure_network=insecure_network)
    options = runs.Options(
        clusters_per_client=cli._clusters_per_client(clusters_per_client),
        upsilon=None if upsilon is None else cli._upsilon(upsilon),
        scale=scale,
        seed=seed,
    )
    try:
        with ended_by_signals():
            serve(
                out,
                options,
                certificates=certificates,
                host=host,
                port=port,
                expect=expect,
                min_clients=min_clients,
                round_timeout=round_timeout,
                command=shlex.join(["fedgem", *sys.argv[1:]]),
                say=typer.echo,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(runs.where_it_stopped(out)) from None


@app.command(
    epilog="\b\nExample:\n  fedgem client plant7.parquet --server fed.example.com:8000 "
    "--certificates keys"
)
def client(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The client's rows.")],
    server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The server to take part at.")
    ] = None,
    certificates: Certificates = None,
    name: Annotated[
        str | None, typer.Option(help="The client; the file's name by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for its own model and labels; NAME-run by default."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="The features; all columns by default.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="A column that names the rows and is no feature.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what would be sent, as JSON lines, and send nothing."
        ),
    ] = False,
    insecure: Insecure = False,
    insecure_network: InsecureNetwork = False,
) -> None:
    """Take part in a federation with the rows of a file.

    The rows stay here. When the server is done, the client's own model and the cluster of each of
    its rows are written to a folder, and the command ends.
    """
    from fedgem.cli import _columns
    from fedgem.engines.answering import Answering
    from fedgem.federation import keeper
    from fedgem.files import open_source

    source = open_source(file, None if columns is None else _columns(columns), id_column)
    source = replace(source, name=name or source.name)
    if dry_run:
        from fedgem.engines import dry_run as trial
        from fedgem.runs import Options

        answer = Answering(source, lambda model: [source.rows.shape[0]])
        trial.dry_run(answer, Options(), lambda message: typer.echo(json.dumps(message)))
        return
    with _flower_installed():
        from fedgem.engines.flower.clienting import join
        from fedgem.engines.flower.processes import ended_by_signals, refuse_plain_text
    if server is None:
        raise InputError("client: found no --server, expected HOST:PORT, or --dry-run.")
    _check_security(certificates, insecure=insecure)
    refuse_plain_text(
        server.rpartition(":")[0], insecure=insecure, insecure_network=insecure_network
    )
    folder = out or Path(f"{source.name}-run")
    keep, done = keeper(source, folder), []

    def keep_and_tell(model: bytes) -> list[int]:
        counts = keep(model)
        typer.echo(f"The model and the labels are in {folder}.")
        done.append(True)
        return counts

    with ended_by_signals():
        join(
            Answering(source, keep_and_tell, typer.echo),
            server,
            certificates,
            is_done=lambda: bool(done),
            say=typer.echo,
        )


def _check_security(certificates: Path | None, *, insecure: bool) -> None:
    if (certificates is None) != insecure:
        found = "neither" if certificates is None else "both"
        raise InputError(f"Found {found} of --certificates and --insecure, expected one of them.")


@contextmanager
def _flower_installed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(
            f"Found no module {error.name}, expected it to be installed: pip install "
            "'fedgem[flower]'."
        ) from error

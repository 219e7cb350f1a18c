"""The command line: `fedgem demo`, `fit`, `predict`, `show` and `study`.

Whatever takes long to import is imported by the command that needs it.
"""

from __future__ import annotations

import csv
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedgem import __version__, cli_federation
from fedgem.errors import InputError, StoredFileError


class _Commands(TyperGroup):
    """The one place where what a user can mend becomes a sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of a pipe has had enough; Typer ends quietly
            raise
        except (InputError, StoredFileError, OSError) as error:
            typer.secho(f"Error: {_sentence(error)}", fg="red", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            typer.echo(str(error) or "Stopped; nothing was written.", err=True)
            raise typer.Exit(130) from error


app = typer.Typer(
    name="fedgem",
    cls=_Commands,
    help="Find the clusters that several clients share, their number, and who has which.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Start with:  fedgem demo",
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier call wrote there.")]
IdColumn = Annotated[
    str | None, typer.Option(help="A column that names the rows and is no feature.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="The same seed, the same result.")
]


def main() -> None:
    """Run the command line."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedgem {__version__}")
        raise typer.Exit


@app.callback()
def _fedgem(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None: ...


@app.command(epilog="\b\nExample:\n  fedgem demo --plants 20 --seed 1")
def demo(
    plants: Annotated[int, typer.Option(min=3, metavar="N", help="The number of plants.")] = 12,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("fedgem-demo"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find the fault modes of a simulated fleet of plants.

    Writes a CSV file for each plant into a folder, fits them as `fedgem fit` does, and shows the
    modes that it found beside the true ones. The first time on a machine takes some seconds more,
    for compilation.
    """
    from fedgem import rendering
    from fedgem.demo import run_demo

    with rendering.progress("Simulating the fleet") as engine:
        facts = run_demo(out, plants, seed, engine, force=force)
    if as_json:
        _print_json(facts)
    else:
        rendering.show_demo(facts)


@app.command(epilog="\b\nExample:\n  fedgem fit plants/*.csv --out run --id-column id")
def fit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="A file for each client, named after it: CSV, Parquet, Feather, NPY or NPZ.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    clusters_per_client: Annotated[
        str,
        typer.Option(
            metavar="auto|N|FILE",
            help="How many clusters each client sees, where that is known; by default each client "
            "finds its own number. A number for all, a list in the order of the files (3,4,5), or "
            "a file by name: CSV with the columns client and clusters, or JSON like "
            '{"plant-1": 3}.',
        ),
    ] = "auto",
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="The features; all columns by default.")
    ] = None,
    id_column: IdColumn = None,
    seed: Seed = 0,
    upsilon: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Join components by their uncertainty sets, as in the paper, and how far apart "
            "they may be; larger gives fewer clusters. Takes --clusters-per-client.",
        ),
    ] = None,
    scale: Annotated[
        bool,
        typer.Option(
            help="Put features on a common scale first, by their spread over all clients. On by "
            "default here, off by default in Python (FedGEM(scale=True)). Results are in the "
            "original units either way."
        ),
    ] = True,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find the clusters in the files of several clients.

    Writes a folder: the model, the clusters, who has which, and the cluster of every row. Ctrl-C
    stops it; the same command then goes on from the last round.
    """
    from fedgem import rendering, runs

    options = runs.Options(
        clusters_per_client=_clusters_per_client(clusters_per_client),
        upsilon=None if upsilon is None else _upsilon(upsilon),
        scale=scale,
        seed=seed,
        columns=None if columns is None else _columns(columns),
        id_column=id_column,
    )
    try:
        with rendering.progress("Reading the clients' rows") as engine:
            run = runs.fit_files(
                files,
                out,
                options,
                command=shlex.join(["fedgem", *sys.argv[1:]]),
                engine=engine,
                force=force,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(runs.where_it_stopped(out)) from None
    facts = runs.describe(run) | {"out": str(out)}
    if as_json:
        _print_json(facts)
    else:
        rendering.show_run(facts)
        rendering.show_next(facts)


@app.command(epilog="\b\nExample:\n  fedgem predict run new.csv --client plant-3 --out labels.csv")
def predict(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows to label.")],
    client: Annotated[
        str | None, typer.Option(help="Whose rows they are; anyone's by default.")
    ] = None,
    id_column: IdColumn = None,
    out: Annotated[
        Path | None, typer.Option(help="The CSV file to write; the terminal by default.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say which cluster each row of a file belongs to.

    Columns are found by their names, in any order; a file may have more than the run had.
    """
    from fedgem import rendering, runs, writing

    if out:
        writing.refuse_existing(out, force=force)
    model = runs.read_model(folder)
    source, clusters, probabilities = runs.predict(model, file, client, id_column)
    columns = runs.about_rows(source, cluster=clusters, probability=probabilities.round(4))
    if out:
        with writing.appearing(out, force=force) as path:
            writing.write_table(path, columns, writing.lines_of(columns))
    if as_json:
        lists = {name: values.tolist() for name, values in columns.items()}
        _print_json({"n_clusters": model.n_clusters_, "client": client} | lists)
    elif out:
        rendering.show_counts([int((clusters == k).sum()) for k in range(model.n_clusters_)], out)
    else:
        writing.write_rows(sys.stdout, columns, writing.lines_of(columns))


@app.command(epilog="\b\nExample:\n  fedgem show run")
def show(folder: Folder, as_json: Json = False) -> None:
    """Show the clusters of a run, and who has which.

    For each cluster: its size, and the features that tell it apart.
    """
    from fedgem import rendering, runs

    facts = runs.describe(runs.read_run(folder))
    if as_json:
        _print_json(facts)
    else:
        rendering.show_run(facts)


@app.command(
    epilog="\b\nExamples:\n  fedgem study                      which studies there are\n"
    "  fedgem study table1 --seeds 10 --data mnist --data 'frog-*'\n"
    "  fedgem study table1 --methods mine.py"
)
def study(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The study.")] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="How many seeds.")] = 50,
    out: Annotated[Path, typer.Option(help="The folder of all studies.")] = Path("fedgem-study"),
    data: Annotated[
        list[str] | None,
        typer.Option(help="A data set to measure on; all by default, * matches any. Repeatable."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="A method to measure, likewise, or a Python file with a class under "
            "@fedgem.baselines.method('its name'). Repeatable."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The folder that data sets are read from.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Processes, of one thread each; one a core."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Measure again.")] = False,
) -> None:
    """Measure methods against each other, and draw tables and figures.

    Every row is kept as soon as it is measured: Ctrl-C stops a study, and the same command goes on
    from there. A study that is complete is only drawn anew. The tables show all that was measured
    so far, as Markdown, CSV and LaTeX too; figures are SVG and PNG.
    """
    from fedgem import rendering
    from fedgem.studies.catalogue import STUDIES
    from fedgem.studies.running import NO_FIGURES, Options, can_draw, run_study

    if name is None:
        rendering.show_studies({study.name: study.about for study in STUDIES.values()})
        return
    if name not in STUDIES:
        raise InputError(f"Found no study {name!r}, expected one of {', '.join(STUDIES)}.")
    jobs = jobs or os.cpu_count() or 1
    options = Options(seeds, out, data or (), methods or (), data_dir, jobs, force)
    with rendering.counting("Measuring") as (begin, step):
        tables = run_study(STUDIES[name], options, begin, lambda row: step())
    rendering.show_tables(tables, out / name)
    if STUDIES[name].figures and not can_draw():
        typer.echo(NO_FIGURES, err=True)


app.add_typer(cli_federation.app)


def _clusters_per_client(text: str) -> Any:
    """Return the number, the numbers or the mapping that a user means, or "auto"."""
    if text == "auto":
        return text
    if text.endswith((".csv", ".json")):
        return _read_clusters_per_client(Path(text))
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"found {text!r}, expected auto, a number, a list like 3,4,5, or a CSV or JSON file.",
            param_hint="'--clusters-per-client'",
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def _read_clusters_per_client(path: Path) -> dict[str, Any]:
    """Read how many clusters each client sees from a CSV or JSON file."""
    try:
        text = path.read_text("utf-8-sig")
        if path.suffix == ".json":
            pairs = json.loads(text, object_pairs_hook=list)
        else:
            lines = csv.DictReader(text.splitlines(), restval="")
            pairs = [(line["client"], _whole_if_it_is(line["clusters"])) for line in lines]
        numbers = dict(pairs)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: found something else, expected a CSV file with the columns client and "
            'clusters, or a JSON object like {"plant-1": 3}.'
        ) from error
    if len(numbers) < len(pairs):
        twice = next(name for name, _ in pairs if [n for n, _ in pairs].count(name) > 1)
        raise InputError(f"{path}: found client {twice!r} twice, expected one number for each.")
    return numbers


def _whole_if_it_is(text: str) -> int | str:
    """Leave what is no number as it is, for the message that refuses it."""
    return int(text) if text.strip().isdecimal() else text


def _columns(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names):
        raise typer.BadParameter("expected different names.", param_hint="'--columns'")
    return names


def _upsilon(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise typer.BadParameter(
            f"found {text!r}, expected auto or a number.", param_hint="'--upsilon'"
        ) from None


def _sentence(error: Exception) -> str:
    """Return what went wrong in the words of the command line."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}."
    text = str(error).replace("n_local_components", "--clusters-per-client")
    return text.replace("data_dir", "--data-dir")


def _print_json(facts: dict[str, Any]) -> None:
    typer.echo(json.dumps(facts))

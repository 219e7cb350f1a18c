"""What the command line shows: tables for people on stdout, progress on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from fedgem.client import Client
from fedgem.consensus import Consensus
from fedgem.engines.engine import State, Task
from fedgem.engines.local import LocalEngine
from fedgem.scaling import Moments
from fedgem.server import Training

if TYPE_CHECKING:
    from fedgem.studies.tables import Table as StudyTable

# Names of clients and columns are shown as they are, whatever is in them.
out = Console(markup=False, highlight=False, emoji=False)
notes = Console(markup=False, highlight=False, emoji=False, stderr=True)

MOST_COLUMNS = 16  # clusters side by side in 80 columns
MOST_LINES = 30  # clients one below the other


@dataclass(frozen=True)
class ShownEngine(LocalEngine):
    """The in-process engine, with a progress bar that moves with every round."""

    bars: Progress | None = None

    def run(
        self,
        state: State,
        clients: Mapping[str, Client],
        *,
        seed: int = 0,
        on_round: Callable[[State], None] | None = None,
    ) -> State:
        """Carry the messages as `LocalEngine.run` does."""
        assert self.bars is not None
        bars, task = self.bars, self.bars.task_ids[0]

        def show(state: State) -> None:
            stage, done, n_rounds = _progress_of(state)
            if isinstance(state, Training) and on_round is None:
                stage = "Choosing upsilon"  # by training on parts of the rows
            if state.round:
                stage += f", round {state.round}"
            bars.update(task, total=n_rounds, completed=done, description=stage)

        def shown(state: State) -> None:
            show(state)
            if on_round:
                on_round(state)

        show(state)
        return super().run(state, clients, seed=seed, on_round=shown)


def _progress_of(state: Task) -> tuple[str, int, int]:
    """Return what a task is at, how many rounds of that are done, and how many there are."""
    if isinstance(state, Consensus):
        if state.phase == "done":
            return "Writing what was found", state.n_rounds, state.n_rounds
        numbers = sorted({mixture.n_clusters for mixture in state.mixtures})
        stage = {
            "fit": "Fitting at each client",
            "spread": "Spreading components",
            "number": f"How many clusters: {', '.join(map(str, numbers))}?",
            "shape": "How many Gaussians a cluster",
        }[state.phase]
        return stage, state.mixtures[0].age if state.mixtures else 0, state.n_rounds
    if isinstance(state, Training):
        return "Training", state.round, state.settings.max_iter + 1
    if isinstance(state, Moments):
        return "Looking at all rows" if state.full else "Agreeing on a scale", state.round, 1
    return "Choosing upsilon", state.round, 1


@contextmanager
def progress(first: str) -> Iterator[LocalEngine]:
    """Show a bar while something runs on the engine that this gives; nothing outside a terminal.

    Parameters
    ----------
    first : str
        What happens until the engine runs.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bars:
        bars.add_task(first, total=None)
        yield ShownEngine(bars=bars)


@contextmanager
def counting(what: str) -> Iterator[tuple[Callable[[int], None], Callable[[], None]]]:
    """Show a bar while many tasks are done; nothing outside a terminal.

    Gives a function to call with their number, and one to call after each.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=notes,
        transient=True,
        disable=not notes.is_terminal,
    ) as bars:
        task = bars.add_task(what, total=None)
        yield (
            lambda n_tasks: bars.update(task, total=n_tasks),
            lambda: bars.advance(task),
        )


def show_studies(about: Mapping[str, str]) -> None:
    """Show which studies there are, each with what it shows."""
    table = _table()
    table.add_column("study")
    table.add_column("what it shows")
    for name, what in about.items():
        table.add_row(name, what)
    out.print(table)


def show_tables(tables: Sequence[StudyTable], folder: Path) -> None:
    """Show the tables of a study, and say where they are."""
    from fedgem.studies.tables import rich_table

    # Lines that are too long for a terminal stay readable in a file or a pager; cut, they do not.
    wide = Console(markup=False, highlight=False, emoji=False, width=max(out.width, 200))
    for table in tables:
        wide.print(rich_table(table))
        for note in table.notes:
            say(note, "dim")
        say()
    out.print(f"Written to {folder}.", soft_wrap=True)


def say(text: str = "", style: str | None = None) -> None:
    """Print a paragraph."""
    out.print(text, style=style)


def show_run(facts: Mapping[str, Any]) -> None:
    """Show a run: its clusters, what tells them apart, and who has which.

    Parameters
    ----------
    facts : dict
        As `fedgem.runs.describe` returns them.
    """
    scaled = facts["scaled"]
    say(
        f"Clusters: {facts['n_clusters']}{_likely(facts)}, of {facts['n_components']} components. "
        f"Clients: {facts['n_clients']}. Rows: {facts['n_rows']:,}. "
        f"Rounds: {facts['n_rounds']}."
    )
    say(
        "Features were scaled first (on by default here, off by default in Python)."
        if scaled
        else "Features were not scaled (--no-scale): large numbers weigh more than small ones.",
        "dim",
    )
    say()
    say("The clusters, and what tells each apart", "bold")
    table = _table()
    for name in ("cluster", "rows", "share", "clients"):
        table.add_column(name, justify="right")
    table.add_column("farthest from the mean of all rows")
    for cluster in facts["clusters"]:
        table.add_row(
            str(cluster["cluster"]),
            f"{cluster['rows']:,}",
            f"{cluster['share']:.1%}",
            str(len(cluster["clients"])),
            "\n".join(
                f"{a['feature']} {a['sd']:+.1f} sd ({a['mean']:.4g})" for a in cluster["apart"]
            ),
        )
    out.print(table)
    say(
        "sd: standard deviations within clusters; in brackets the cluster's mean, in original "
        "units",
        "dim",
    )
    say()
    show_members(facts["members"])


def _likely(facts: Mapping[str, Any]) -> str:
    """Say how certain the number of clusters is, where that is known."""
    if "n_clusters_interval" not in facts:
        return ""
    low, high = facts["n_clusters_interval"]
    return f" (90%: {low} to {high})" if low < high else f" (90%: {low})"


def show_members(members: Mapping[str, Sequence[int | None]]) -> None:
    """Show who has which cluster, a line for each client.

    Of many clients, those that have the same clusters share a line.

    Parameters
    ----------
    members : dict of str to sequence
        For each client, the rows in each cluster; None where it does not have the cluster.
    """
    lines = [(name, tuple(n is not None for n in rows)) for name, rows in members.items()]
    if len(lines) > MOST_LINES:
        alike: dict[tuple[bool, ...], list[str]] = {}
        for name, has in lines:
            alike.setdefault(has, []).append(name)
        by_size = sorted(alike.items(), key=lambda item: -len(item[1]))
        lines = [(_shortened(names), has) for has, names in by_size]

    n_clusters = len(lines[0][1])
    say("Who has which cluster", "bold")
    table = _table()
    table.add_column("client")
    if n_clusters <= MOST_COLUMNS:
        yes, no = ("x", ".") if out.options.ascii_only else ("●", "·")
        for k in range(n_clusters):
            table.add_column(str(k), justify="center")
        for label, has in lines[:MOST_LINES]:
            table.add_row(label, *(yes if h else no for h in has))
    else:
        table.add_column("clusters")
        for label, has in lines[:MOST_LINES]:
            table.add_row(label, ", ".join(str(k) for k in range(n_clusters) if has[k]))
    out.print(table)
    if len(lines) > MOST_LINES:
        say(f"And {len(lines) - MOST_LINES} more lines; members.csv has them all.", "dim")


def _show_truth(facts: Mapping[str, Any]) -> None:
    """Show the clusters beside the modes that they stand for."""
    truth, found = facts["truth"], f"{facts['n_clusters']} clusters{_likely(facts)}"
    say(f"Found {found}; in truth there are {truth['n_modes']} modes", "bold")
    table = _table()
    table.add_column("cluster", justify="right")
    table.add_column("the mode it is")
    for name in ("rows", "right", "plants", "in truth"):
        table.add_column(name, justify="right")
    for mode in truth["modes"]:
        table.add_row(
            str(mode["cluster"]),
            mode["mode"],
            f"{mode['rows']:,}",
            f"{mode['rows_right']:.1%}",
            str(mode["plants"]),
            str(mode["plants_truly"]),
        )
    out.print(table)
    if truth["not_found"]:
        say(f"No cluster stands for: {', '.join(truth['not_found'])}.")
    say(
        f"Rows right: {truth['rows_right']:.1%}. "
        f"Adjusted Rand index: {truth['adjusted_rand_index']:.3f} (at best 1)."
    )


def show_demo(facts: Mapping[str, Any]) -> None:
    """Show what the demonstration did, what it found, and what to do next.

    Parameters
    ----------
    facts : dict
        As `fedgem.demo.run_demo` returns them.
    """
    say(
        f"Simulated {facts['n_clients']} plants and {facts['n_rows']:,} vibration measurements, "
        f"and wrote a CSV file for each plant to {facts['out']}/plants."
    )
    say(
        "Then fitted those files, with features scaled. Nobody said how many modes there are, in "
        "all or at a plant; no row left its plant."
    )
    say()
    _show_truth(facts)
    say()
    show_members(facts["members"])
    truth = facts["truth"]
    say(
        f"Is this mode at this plant? {truth['memberships_right']} of {truth['memberships']} "
        "answers are right."
    )
    say()
    say("Next, with these files or your own, one for each client:", "bold")
    for command in facts["next"]:
        out.print(f"  {command}", soft_wrap=True)


def show_next(facts: Mapping[str, Any]) -> None:
    """Say where the results are and what can be done with them."""
    say()
    out.print(
        f"Written to {facts['out']}: the model, tables, and the cluster of every row.",
        soft_wrap=True,
    )


def show_counts(counts: Sequence[int], path: Path) -> None:
    """Show how many rows each cluster got, and where their labels are."""
    table = _table()
    for name in ("cluster", "rows", "share"):
        table.add_column(name, justify="right")
    for k, n in enumerate(counts):
        table.add_row(str(k), f"{n:,}", f"{n / sum(counts):.1%}")
    out.print(table)
    out.print(f"{sum(counts):,} rows written to {path}.", soft_wrap=True)


def _shortened(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)

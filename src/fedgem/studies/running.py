"""Running a study: what is missing is measured, then everything is drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

from fedgem.errors import InputError
from fedgem.studies import rows as stored
from fedgem.studies.cases import loaded
from fedgem.studies.measuring import Task, candidates, declare, measure_all
from fedgem.studies.rows import Row
from fedgem.studies.study import Measurement, Study
from fedgem.studies.tables import Table, csv_text, latex, markdown
from fedgem.writing import appearing

NO_FIGURES = "Figures need Matplotlib, which is not installed: pip install 'fedgem[study]'."
WRITTEN = {"md": markdown, "csv": csv_text, "tex": latex}


@dataclass(frozen=True)
class Options:
    """What to measure of a study, and how.

    Attributes
    ----------
    seeds : int
        How many, from 0 on.
    out : path
        The folder of all studies.
    data : sequence of str
        The data sets; all by default. ``*`` stands for anything.
    methods : sequence of str
        The methods, likewise, or Python files that declare some.
    data_dir : path, optional
        The folder that data sets are read from.
    jobs : int
        How many tasks run side by side, where their seconds are not what is measured.
    force : bool
        Whether to measure again what is measured already.
    """

    seeds: int = 50
    out: Path = Path("fedgem-study")
    data: Sequence[str] = ()
    methods: Sequence[str] = ()
    data_dir: Path | None = None
    jobs: int = 1
    force: bool = False


def run_study(
    study: Study,
    options: Options,
    begin: Callable[[int], None] = lambda n_tasks: None,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Table]:
    """Measure what is missing, write tables and figures, and return the tables.

    Every row is on disk as soon as it is measured. A study that was stopped goes on from there;
    one that is complete is only drawn anew. The tables show all that was ever measured for the
    study, whatever the options select now.

    Parameters
    ----------
    study : Study
        The study.
    options : Options
        What to measure of it.
    begin : callable
        Called with the number of tasks.
    on_row : callable
        Called with each row.
    """
    path = rows_of(study.measurement, options.out)
    files, methods = _methods(study.measurement, options.methods)
    tasks = _tasks(study.measurement, methods, options)
    known = {stored.key(row) for row in stored.read(path)}
    if not options.force:
        tasks = [task for task in tasks if _key(task) not in known]
    for name in dict.fromkeys(task.case.data for task in tasks if task.case.is_real):
        loaded(name, options.data_dir)  # what is missing is said now and not in hours
    begin(len(tasks))
    path.parent.mkdir(parents=True, exist_ok=True)
    n_done = 0
    jobs = 1 if study.measurement.is_timed else options.jobs
    measuring = measure_all(tasks, jobs=jobs, data_dir=options.data_dir, files=files)
    try:
        with closing(measuring) as measured:
            for row in measured:
                stored.append(path, row)
                on_row(row)
                n_done += 1
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Stopped; {n_done} of {len(tasks)} tasks are measured and kept in {path.parent}. The "
            "same command goes on from there."
        ) from None
    rows = in_order(stored.read(path), study.measurement)
    if not rows:
        raise InputError(f"{study.name}: found no rows, expected at least one seed.")
    if tasks:
        stored.consolidate(path, rows)
    return _draw(study, rows, options.out)


def rows_of(measurement: Measurement, out: Path) -> Path:
    """Return the file of a measurement's rows."""
    return out / "rows" / f"{measurement.name}.parquet"


def in_order(rows: Sequence[Row], measurement: Measurement) -> list[Row]:
    """Return rows in the order of the measurement's cases, then of methods, then of seeds."""
    places = {(case.data, case.x): n for n, case in enumerate(measurement.cases)}
    methods = {name: n for n, name in enumerate(candidates())}

    def order(row: Row) -> tuple[int, int, str, int]:
        place = places.get((row["data"], row["x"]), len(places))
        return place, methods.get(row["method"], len(methods)), row["method"], row["seed"]

    return sorted(rows, key=order)


def can_draw() -> bool:
    """Tell whether figures can be drawn."""
    return find_spec("matplotlib") is not None


def _draw(study: Study, rows: Sequence[Row], out: Path) -> list[Table]:
    tables = {name: make(rows) for name, make in study.tables.items()}
    kinds = [*(f"{name}.{kind}" for name in study.tables for kind in WRITTEN)]
    kinds += [f"{name}.{kind}" for name in study.figures for kind in ("svg", "png")]
    with appearing(out / study.name, kinds, force=True) as folder:
        folder.mkdir()
        for name, table in tables.items():
            for kind, text_of in WRITTEN.items():
                (folder / f"{name}.{kind}").write_text(text_of(table), "utf-8")
        if can_draw() and study.figures:
            from fedgem.studies import figures

            for name, draw in study.figures.items():
                figure = draw(rows)
                if figure is not None:
                    figures.save(figure, folder, name)
    return list(tables.values())


def _key(task: Task) -> tuple[object, ...]:
    return task.case.data, task.case.x, task.method, task.seed


def _tasks(measurement: Measurement, methods: Sequence[str], options: Options) -> list[Task]:
    """Return all tasks, seed by seed: a study that is stopped has compared like with like."""
    names = list(dict.fromkeys(case.data for case in measurement.cases))
    chosen = _matching(options.data or ["*"], names, "--data")
    cases = [case for case in measurement.cases if case.data in chosen]
    return [
        Task(case, method, seed)
        for seed in range(options.seeds)
        for case in cases
        if case.most_seeds is None or seed < case.most_seeds
        for method in methods
        if not case.methods or method in case.methods
    ]


def _methods(measurement: Measurement, wanted: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the files that declare methods, and the names of those to measure."""
    files = [Path(text) for text in wanted if text.endswith(".py")]
    declared = [name for file in files for name in declare(file)]
    patterns = [text for text in wanted if not text.endswith(".py")]
    known = candidates()
    if not wanted:
        return [], [name for name, entry in known.items() if measurement.takes(entry)]
    return files, list(dict.fromkeys([*_matching(patterns, list(known), "--methods"), *declared]))


def _matching(patterns: Sequence[str], names: Sequence[str], option: str) -> list[str]:
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in names):
            raise InputError(f"{option}: found {pattern!r}, expected some of: {'; '.join(names)}.")
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]

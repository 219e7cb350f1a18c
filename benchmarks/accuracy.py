"""Accuracy on data sets whose classes are known, beside the bar and beside no federation.

    python benchmarks/accuracy.py --data iris,wine --seeds 3

Every data set is spread over clients as in the paper, once a seed, and each client is told how many
of the classes it has (with `--auto`, not even that). Scores are on rows that did not train:

- local: the adjusted Rand index (ARI) of a client's test rows, averaged over the clients;
- global: one ARI over all test rows, with the clusters' global numbers;
- K-hat: the number of clusters found.

Beside them: the local ARI of the same model where every client trains alone (no federation) and,
on blobs, local and global ARI of an oracle that knows the true parameters and of the model with
identity covariances. The target is local / global / abs(K-hat - K).

What was measured is appended to a file in the folder `--out`, and the next call goes on from there:
measure other code into another folder. The table shows all that is in it.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from accuracy_data import DATA_SETS, Blobs, Classes, Labels, Target
from fedgem import FedGEM, LocalEngine

AUTO_MAY_LOSE = 0.03  # ARI, where a client has to find its number of components by itself
FEDERATION_MAY_LOSE = 0.005


def scores(found: Labels, truth: Labels) -> tuple[float, float]:
    """Return the local and the global ARI."""
    local = np.mean([adjusted_rand_score(truth[name], found[name]) for name in truth])
    everyone = [np.concatenate([labels[name] for name in truth]) for labels in (truth, found)]
    return float(local), float(adjusted_rand_score(*everyone))


@cache
def compile_once() -> None:
    """Fit something small: the seconds of the first fit are not to hold those of compilation."""
    rng = np.random.default_rng(0)
    FedGEM(2, random_state=0).fit([rng.normal(size=(50, 2)) for _ in range(3)])


def measure(name: str, seed: int, auto: bool) -> dict[str, Any]:
    """Measure the model on one data set, spread over clients by one seed."""
    split, oracle = DATA_SETS[name].draw(seed)
    n_classes = split.memberships.shape[1]
    held = dict(zip(split.train, split.memberships.sum(axis=1).tolist(), strict=True))

    def fitted(*clients: str, **params: Any) -> FedGEM:
        if not auto:
            params["n_local_components"] = {client: held[client] for client in clients}
        # One thread: runs side by side are not to slow each other down.
        model = FedGEM(engine=LocalEngine(n_jobs=1), random_state=seed, **params)
        return model.fit({client: split.train[client] for client in clients})

    def scores_of(model: FedGEM) -> tuple[float, float]:
        found = {client: model.predict(X, client=client) for client, X in split.test.items()}
        return scores(found, split.test_labels)

    row: dict[str, Any] = {"data": name, "seed": seed, "n_classes": n_classes}
    with threadpool_limits(1):
        compile_once()
        begin = time.perf_counter()
        model = fitted(*held)
        row["seconds"] = time.perf_counter() - begin
        row["n_clusters"] = model.n_clusters_
        row["error"] = abs(model.n_clusters_ - n_classes)
        row["local"], row["global"] = scores_of(model)
        alone = {client: fitted(client).predict(X, client) for client, X in split.test.items()}
        row["alone"], _ = scores(alone, split.test_labels)
        if oracle is not None:
            row["oracle_local"], row["oracle_global"] = scores(oracle, split.test_labels)
            identity = fitted(*held, covariance_type="identity")
            row["identity_local"], row["identity_global"] = scores_of(identity)
    return row


def target_of(name: str, means: Mapping[str, float], auto: bool) -> Target | None:
    """Return what a data set has to reach; on blobs, it hangs on what the oracle reaches."""
    data = DATA_SETS[name]
    if isinstance(data, Classes):
        target = data.target
    elif data.min_distance < data.bar_from:
        target = None
    else:
        target = Target(
            means["oracle_local"] - data.below_oracle,
            means["oracle_global"] - data.below_oracle,
            data.error,
        )
    if target is None or not auto:
        return target
    return Target(target.local - AUTO_MAY_LOSE, target.global_ - AUTO_MAY_LOSE, target.error)


def verdict(name: str, means: Mapping[str, float], target: Target | None) -> str:
    """Say whether a data set meets its bar, and if not, where; nothing if it has no bar."""
    checks: dict[str, bool] = {}
    if target is not None:
        checks["local"] = means["local"] >= target.local
        checks["global"] = means["global"] >= target.global_
        checks["K-hat"] = means["error"] <= target.error
    data = DATA_SETS[name]
    if isinstance(data, Blobs) and data.condition_number > 1:
        checks["identity"] = (
            means["local"] > means["identity_local"] and means["global"] > means["identity_global"]
        )
    misses = [check for check, holds in checks.items() if not holds]
    return f"NO: {', '.join(misses)}" if misses else "yes" if checks else ""


def summary(name: str, rows: Sequence[Mapping[str, Any]], auto: bool) -> dict[str, Any]:
    """Return means and standard deviations over the seeds, and what they have to reach."""
    row: dict[str, Any] = {"data": name, "n_classes": rows[0]["n_classes"], "seeds": len(rows)}
    for key in [key for key in rows[0] if key not in ("data", "seed", "n_classes", "code")]:
        values = [r[key] for r in rows]
        row[key] = float(np.mean(values))
        row[f"{key}_std"] = float(np.std(values, ddof=min(1, len(values) - 1)))
    target = target_of(name, row, auto)
    if target is not None:
        row["target_local"], row["target_global"] = target.local, target.global_
        row["target_error"] = target.error
    row["met"] = verdict(name, row, target)
    not_worse = row["local"] >= row["alone"] - FEDERATION_MAY_LOSE
    row["not_worse"] = "yes" if not_worse else "NO"
    return row


def cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a summary as the cells of a table."""

    def spread(key: str, digits: int = 3) -> str:
        return f"{row[key]:.{digits}f} ± {row[f'{key}_std']:.{digits}f}"

    def pair(key: str) -> str:
        known = f"{key}_local" in row
        return f"{row[f'{key}_local']:.3f} / {row[f'{key}_global']:.3f}" if known else ""

    return {
        "data (K)": f"{row['data']} ({row['n_classes']})",
        "seeds": str(row["seeds"]),
        "local": spread("local"),
        "global": spread("global"),
        "abs(K-hat - K)": spread("error", 1),
        "K-hat": spread("n_clusters", 1),
        "target": f"{pair('target')} / {row['target_error']:g}" if "target_error" in row else "",
        "met": row["met"],
        "no federation": spread("alone"),
        "not worse": row["not_worse"],
        "oracle": pair("oracle"),
        "identity": pair("identity"),
        "seconds": f"{row['seconds']:.3g} ± {row['seconds_std']:.2g}",
    }


def report(rows: Sequence[Mapping[str, Any]], stem: Path, auto: bool) -> None:
    """Print the table, and write it beside the measurements as Markdown and as CSV."""
    summaries = [
        summary(name, own, auto)
        for name in DATA_SETS
        if (own := [row for row in rows if row["data"] == name])
    ]
    lines = [cells(s) for s in summaries]
    known = "unknown to the clients" if auto else "given to the clients"
    title = f"fedgem accuracy, K_g {known}; code {', '.join(sorted({r['code'] for r in rows}))}"

    table = Table(*lines[0], title=title)
    for line in lines:
        table.add_row(*line.values())
    Console(width=max(Console().width, 200)).print(table)

    markdown = [list(lines[0]), ["---"] * len(lines[0]), *(line.values() for line in lines)]
    stem.with_suffix(".md").write_text(
        f"{title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in markdown)
    )
    with stem.with_suffix(".csv").open("w", newline="") as file:
        columns = dict.fromkeys(key for s in summaries for key in s)
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        writer.writerows(summaries)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def code() -> str:
    """Return which commit is measured."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds, from 0 on")
    parser.add_argument(
        "--data", default="all", help=f"'all', or some of {', '.join(DATA_SETS)}; * matches any"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--auto", action="store_true", help="do not tell the clients their K_g")
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/accuracy"), help="a folder")
    options = parser.parse_args(arguments)
    patterns = ["*"] if options.data == "all" else options.data.split(",")
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in DATA_SETS):
            parser.error(f"--data: found {pattern!r}, expected some of {', '.join(DATA_SETS)}.")

    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / ("auto" if options.auto else "given")
    path = stem.with_suffix(".jsonl")
    done = {(row["data"], row["seed"]) for row in read(path)}
    tasks = [
        (name, seed)
        for name in DATA_SETS
        if any(fnmatch(name, pattern) for pattern in patterns)
        for seed in range(options.seeds)
        if (name, seed) not in done
    ]
    commit = code()
    # New processes rather than forks: those of a process whose BLAS has threads may hang.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, spawn) as pool, path.open("a") as file:
        futures = [pool.submit(measure, name, seed, options.auto) for name, seed in tasks]
        try:
            for future in track(as_completed(futures), "measuring", total=len(futures)):
                # Line by line, so that a run that is stopped loses only what it is at.
                file.write(json.dumps(future.result() | {"code": commit}) + "\n")
                file.flush()
        finally:
            pool.shutdown(cancel_futures=True)
    report(read(path), stem, options.auto)


if __name__ == "__main__":
    main()

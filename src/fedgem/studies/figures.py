"""Figures at the width of a column, in colours that everybody tells apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedgem.studies.statistics import cliques, critical_difference, friedman_p_value, ranks
from fedgem.typing import Array

WIDTH = 3.4  # inches
FAR_OFF = 5  # times the truth, where a logarithmic scale shows more
# Okabe and Ito's palette without its yellow, which is faint on white; black first.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "svg.hashsalt": "fedgem",  # the same figure, the same file
    "svg.fonttype": "none",
}

# For each panel, each method's (x, mean, standard deviation), one column a point.
Panels = Mapping[str, Mapping[str, Array]]


def lines(
    panels: Panels,
    x: str | None,
    y: str,
    *,
    log: bool = False,
    log_y: bool = False,
    truth: float | None = None,
) -> Figure:
    """Draw means over what a study varies, with their standard deviations, a panel above another.

    Parameters
    ----------
    panels : dict of str to dict of str to array of shape (3, n)
        For each panel, each method's x, mean and standard deviation.
    x, y : str
        What the axes show. Without x, each panel has an x of its own, with the panel's name.
    log, log_y : bool
        Whether x and y are on logarithmic scales.
    truth : float, optional
        Where a line is to say what is right.
    """
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    highest = max(means.max() for panel in panels.values() for _, means, _ in panel.values())
    with matplotlib.rc_context(STYLE):
        height = 0.45 + (1.35 if x else 1.5) * len(panels) + 0.16 * (len(names) // 2 + 1)
        figure = Figure((WIDTH, height), layout="constrained")
        axes = figure.subplots(len(panels), sharex=bool(x), sharey=True, squeeze=False)[:, 0]
        for ax, (title, panel) in zip(axes, panels.items(), strict=True):
            if x:
                ax.set_title(title, loc="left")
            else:
                ax.set_xlabel(title)
            ax.set_ylabel(y)
            if log_y:
                ax.set_yscale("log")
            if truth is not None:
                if highest > FAR_OFF * truth:
                    ax.set_yscale("log")
                else:
                    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
                ax.axhline(truth, color="0.6", linewidth=0.8, zorder=0, label="in truth")
            for name, (positions, means, spreads) in panel.items():
                n = names.index(name)
                ax.errorbar(
                    positions,
                    means,
                    spreads,
                    label=name,
                    color=COLOURS[n % len(COLOURS)],
                    marker=MARKERS[n % len(MARKERS)],
                    linestyle=DASHES[n % len(DASHES)],
                    elinewidth=0.6,
                    capsize=1.5,
                )
            if log:
                ax.set_xscale("log")
        if x:
            axes[-1].set_xlabel(x)
        handles = {
            label: handle
            for ax in axes
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=2,
            frameon=False,
            handlelength=3,
        )
    return figure


def critical_differences(scores: Array, names: Sequence[str], what: str) -> Figure:
    """Draw average ranks over cases, and bars beside methods that do not differ.

    It is Demšar's picture (2006) on its side, which leaves names of any length their room.

    Parameters
    ----------
    scores : array of shape (cases, methods)
        Scores, the higher the better.
    names : sequence of str
        The methods.
    what : str
        What is ranked.
    """
    average = ranks(scores).mean(axis=0)
    order = np.argsort(average, kind="stable")
    values, n_methods = average[order], len(names)
    difference = critical_difference(n_methods, len(scores))
    title = f"{len(scores)} cases, critical difference {difference:.2f}"
    if n_methods > 2:
        title += f", Friedman p = {friedman_p_value(scores):.1g}"
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH, 0.75 + 0.17 * n_methods), layout="constrained")
        ax = figure.subplots()
        ax.set_title(title, fontsize=7, loc="right")
        ax.set_xlabel(f"average rank by {what}")
        ax.plot(values, range(n_methods), "o", color=COLOURS[0])
        ax.set_yticks(range(n_methods), [names[i] for i in order])
        ax.tick_params("y", length=0)
        ax.grid(axis="y", color="0.88", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.set_xlim(0.7, n_methods + 0.3)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_ylim(n_methods - 0.5, -0.5)
        for n, (first, last) in enumerate(cliques(values.tolist(), difference)):
            # Right of the axis of ranks: x in units of its length.
            ax.plot(
                [1.03 + 0.03 * n] * 2,
                [first - 0.25, last + 0.25],
                transform=ax.get_yaxis_transform(),
                color=COLOURS[2],
                linewidth=2,
                clip_on=False,
            )
    return figure


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure as SVG and as PNG."""
    kinds: dict[str, dict[str, Any]] = {"svg": {"metadata": {"Date": None}}, "png": {"dpi": 300}}
    for kind, how in kinds.items():
        with matplotlib.rc_context(STYLE):
            figure.savefig(folder / f"{name}.{kind}", **how)

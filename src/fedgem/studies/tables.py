"""Tables: one set of cells, and a function for each way to write them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "–": "--",
    "υ": r"$\upsilon$",
}


@dataclass(frozen=True)
class Cell:
    """A text, and whether it is the best of its column."""

    text: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes
    ----------
    title : str
        What it shows.
    header : tuple of str
        Names of the columns.
    lines : tuple of tuples of Cell
        One below the other; those of one group share the text of their first cell.
    notes : tuple of str
        What has to be said beneath.
    """

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def grouped(self) -> list[tuple[tuple[Cell, ...], bool]]:
        """The lines as people read them: the name of a group once, and whether the next begins."""
        firsts = [line[0].text for line in self.lines]
        new = [n == 0 or first != firsts[n - 1] for n, first in enumerate(firsts)]
        return [
            (line if is_new else (Cell(), *line[1:]), is_new and n > 0 and not all(new))
            for n, (line, is_new) in enumerate(zip(self.lines, new, strict=True))
        ]


def rich_table(table: Table) -> RichTable:
    """Return a table for the terminal."""
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title=table.title)
    for n, name in enumerate(table.header):
        shown.add_column(Text(name), justify="left" if n < 2 else "right", no_wrap=True)
    for line, begins in table.grouped:
        if begins:
            shown.add_section()
        shown.add_row(*(Text(cell.text, "bold" if cell.best else "") for cell in line))
    return shown


def markdown(table: Table) -> str:
    """Return a table as Markdown.

    Examples
    --------
    >>> print(markdown(Table("Two", ("method", "ARI"), ((Cell("ours"), Cell("0.9", True)),))))
    Two
    <BLANKLINE>
    | method | ARI |
    | --- | --- |
    | ours | **0.9** |
    <BLANKLINE>
    """

    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(text.replace("|", r"\|") for text in texts) + " |"

    lines = [
        line([f"**{cell.text}**" if cell.best else cell.text for cell in cells])
        for cells, _ in table.grouped
    ]
    head = [line(table.header), line(["---"] * len(table.header))]
    notes = [part for note in table.notes for part in ("", note)]
    return "\n".join([table.title, "", *head, *lines, *notes, ""])


def csv_text(table: Table) -> str:
    """Return a table as CSV, with the name of the group in every line."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows([cell.text for cell in line] for line in table.lines)
    return file.getvalue()


def latex(table: Table) -> str:
    r"""Return a table as LaTeX, for the packages booktabs and longtable.

    Examples
    --------
    >>> print(latex(Table("50% & more", ("method", "ARI"), ((Cell("k_FED"), Cell("1 ± 0")),))))
    \begin{longtable}{ll}
    \caption{50\% \& more} \\
    \toprule
    method & ARI \\
    \midrule
    \endhead
    k\_FED & 1 $\pm$ 0 \\
    \bottomrule
    \end{longtable}
    <BLANKLINE>
    """
    lines: list[str] = []
    for cells, begins in table.grouped:
        if begins:
            lines.append(r"\addlinespace")
        texts = [rf"\textbf{{{escape(c.text)}}}" if c.best else escape(c.text) for c in cells]
        lines.append(" & ".join(texts) + r" \\")
    columns = "".join("l" if n < 2 else "r" for n in range(len(table.header)))
    return "\n".join(
        [
            rf"\begin{{longtable}}{{{columns}}}",
            rf"\caption{{{escape(table.title)}}} \\",
            r"\toprule",
            " & ".join(map(escape, table.header)) + r" \\",
            r"\midrule",
            r"\endhead",
            *lines,
            r"\bottomrule",
            r"\end{longtable}",
            *(rf"{escape(note)}\par" for note in table.notes),
            "",
        ]
    )


def escape(text: str) -> str:
    r"""Return a text that LaTeX prints as it is.

    Examples
    --------
    >>> print(escape("K_g < 5 & 4%"))
    K\_g \textless{} 5 \& 4\%
    """
    return "".join(LATEX.get(character, character) for character in text)

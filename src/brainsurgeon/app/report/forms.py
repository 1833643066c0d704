"""A table in every form that it is wanted in: CSV, Markdown, LaTeX; the page's template has its HTML."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

_LATEX = {letter: f"\\{letter}" for letter in "&%_#${}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # else an argument of the line end before it
    "*": "{*}",
    "×": r"$\times$",
    "–": "--",
}


@dataclass(frozen=True)
class Table:
    """A heading and rows of text; `best` holds the (row, column) of what is to stand out.

    The first column may hold names; the others hold numbers, as a reader likes them.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()

    def csv(self) -> str:
        """Return it comma-separated, numbers without thousands' commas or signs, and nothing that is a formula."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(_harmless, self.head))
        writer.writerows([_harmless(first), *(_harmless(_bare(cell)) for cell in rest)] for first, *rest in self.rows)
        return text.getvalue()

    def markdown(self) -> str:
        """Return a table of Markdown, the best in bold."""
        lines = [tuple(map(_markdown, self.head)), ("---", *("---:",) * (len(self.head) - 1))]
        lines += self._marked("**{}**", _markdown)
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self) -> str:
        """Return a tabular, to be set with booktabs."""
        lines = [f"{' & '.join(line)} \\\\" for line in self._marked(r"\textbf{{{}}}", _latex)]
        begin = [rf"\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}", r"\toprule"]
        head = [f"{' & '.join(map(_latex, self.head))} \\\\", r"\midrule"]
        return "\n".join([*begin, *head, *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def _marked(self, form: str, clean: Callable[[str], str]) -> list[tuple[str, ...]]:
        return [
            tuple(form.format(clean(cell)) if (r, c) in self.best else clean(cell) for c, cell in enumerate(row))
            for r, row in enumerate(self.rows)
        ]


def _bare(cell: str) -> str:
    number = cell.replace(",", "").removesuffix("%")
    return number if _is_number(number) else cell


def _harmless(cell: str) -> str:
    """Keep a spreadsheet from taking a name for a formula; a number stays one."""
    return f"'{cell}" if cell[:1] in tuple("=+-@\t\r") and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", cell, re.ASCII) is not None


def _markdown(cell: str) -> str:
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", escape(cell, quote=False))


def _latex(cell: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in cell)

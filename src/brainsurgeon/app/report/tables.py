"""Tables, in every form that they are wanted in: CSV, Markdown, LaTeX, HTML."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from html import escape

from brainsurgeon.app.report.record import SAMPLE_LOSS, Outcome, Record, unit

_LATEX = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "×": r"$\times$",
    "–": "--",
}


@dataclass(frozen=True)
class Table:
    """A heading and rows of text; `best` holds the (row, column) of what is to stand out."""

    name: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()

    def csv(self) -> str:
        """Return it comma-separated, without thousands' commas or signs."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.head)
        writer.writerows([_bare(cell) for cell in row] for row in self.rows)
        return text.getvalue()

    def markdown(self) -> str:
        """Return a table of Markdown, the best in bold."""
        lines = [self.head, ("---", *("---:",) * (len(self.head) - 1))]
        lines += [tuple(self._marked(r, c, "**{}**") for c in range(len(row))) for r, row in enumerate(self.rows)]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"

    def latex(self) -> str:
        """Return a tabular, to be set with booktabs."""
        head = " & ".join(map(_latex, self.head))
        rows = [
            " & ".join(self._marked(r, c, r"\textbf{{{}}}", _latex) for c in range(len(row))) + r" \\"
            for r, row in enumerate(self.rows)
        ]
        columns = "l" + "r" * (len(self.head) - 1)
        begin = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head + r" \\", r"\midrule"]
        return "\n".join([*begin, *rows, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def html(self, links: dict[tuple[int, int], str] | None = None) -> str:
        """Return a table of HTML; `links` says where a (row, column) leads."""

        def cell(row: int, column: int) -> str:
            inside = self._marked(row, column, "<b>{}</b>", escape)
            link = (links or {}).get((row, column))
            return f'<td><a href="{escape(link)}">{inside}</a></td>' if link else f"<td>{inside}</td>"

        head = "".join(f"<th>{escape(word)}</th>" for word in self.head)
        body = "".join(
            "<tr>" + "".join(cell(r, c) for c in range(len(row))) + "</tr>" for r, row in enumerate(self.rows)
        )
        return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

    def without(self, column: int) -> Table:
        """Return the table less a column."""
        keep = [k for k in range(len(self.head)) if k != column]
        best = frozenset((row, k - (k > column)) for row, k in self.best if k != column)
        rows = tuple(tuple(row[k] for k in keep) for row in self.rows)
        return Table(self.name, tuple(self.head[k] for k in keep), rows, best)

    def _marked(self, row: int, column: int, form: str, clean=str) -> str:  # type: ignore[no-untyped-def]
        cell = clean(self.rows[row][column])
        return form.format(cell) if (row, column) in self.best else cell


def comparison(record: Record, metric: str | None = None) -> Table:
    """Make one row a sparsity, one column a method."""
    metric = metric or record.metric
    rows, best = [], set()
    for number, sparsity in enumerate(record.sparsities):
        found = [record.at(label, sparsity) for label in record.labels]
        winner = record.best(sparsity, metric)
        some = next(outcome for outcome in found if outcome is not None)
        left = f"{some.result['size'] - some.result['pruned']:,}"
        rows.append((f"{sparsity:g}", left, *(shown(outcome, metric) for outcome in found)))
        top = shown(winner, metric)
        if len(found) > 1 and winner is not None:
            best |= {(number, k + 2) for k, outcome in enumerate(found) if shown(outcome, metric) == top}
    return Table(metric, ("sparsity", "weights left", *record.labels), tuple(rows), frozenset(best))


def everything(record: Record) -> Table:
    """Make one row an outcome, with all that was measured."""
    scores = [metric for metric in record.metrics if metric != SAMPLE_LOSS]
    head = ("method", "sparsity", "pruned", "of", *scores, "sample loss before", "sample loss after", "seconds")
    rows = [
        (
            o.label,
            f"{o.sparsity:g}",
            f"{o.result['pruned']:,}",
            f"{o.result['size']:,}",
            *(shown(o, metric) for metric in scores),
            _loss(o.result["loss_before"]),
            _loss(o.result["loss_after"]),
            f"{o.seconds:.2f}",
        )
        for o in record.outcomes
    ]
    return Table("outcomes", head, tuple(rows))


def layers(outcome: Outcome) -> Table:
    """Count every layer exactly."""
    counted = [*outcome.result["layers"], {**outcome.result, "name": "all", "shape": ()}]
    rows = [(la["name"], "×".join(map(str, la["shape"])), *_share(la["pruned"], la["size"])) for la in counted]
    return Table("layers", ("layer", "shape", "pruned", "of", "sparsity"), tuple(rows))


def shown(outcome: Outcome | None, metric: str) -> str:
    """Return a value as a table shows it."""
    value = None if outcome is None else outcome.value(metric)
    return "–" if value is None else figure(value, metric)


def figure(value: float, metric: str = "") -> str:
    """Return a number: per cents with two digits behind the point, others with four where they are small."""
    if unit(metric):
        return f"{value:.2f}"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.6g}"


def _share(pruned: int, size: int) -> tuple[str, str, str]:
    return f"{pruned:,}", f"{size:,}", f"{pruned / size:.2%}"


def _loss(value: float | None) -> str:
    return "not finite" if value is None else figure(value)


def _bare(cell: str) -> str:
    digits = cell.replace(",", "")
    return digits if digits.replace(".", "").isdigit() else cell.removesuffix("%") if cell[:1].isdigit() else cell


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)

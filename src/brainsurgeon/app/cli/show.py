"""What the commands print of a finished run."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from brainsurgeon.app.report.forms import Table as Words
    from brainsurgeon.app.runs import Cell, RunFolder


def show_result(run: "RunFolder", cell: "Cell") -> None:
    """Print the counts of a pruned model, what it cost, and where everything is."""
    from brainsurgeon.app.report import read_record
    from brainsurgeon.app.report.record import unit
    from brainsurgeon.app.report.tables import figure, layers, shown

    page = report(run.path)  # before anything is printed: a reader may have gone away
    record = read_record([run.path])
    outcome = record.outcomes[0]
    console, result = Console(), outcome.result
    counts = f" at {outcome.sparsity:.4g}: {result.pruned:,} of {result.size:,} weights pruned"
    console.print(Text.assemble((cell.method, "bold"), counts))
    for metric in record.metrics:
        dense, mark = record.of_dense(metric), unit(metric)
        before = f"{figure(dense, metric)}{mark} dense, " if dense is not None else ""
        console.print(Text.assemble(f"{metric}: {before}", (f"{shown(outcome, metric)}{mark}", "bold"), " pruned"))
    console.print(as_rich(layers(outcome)))
    for note in result.notes:
        say(console, f"Note: {note}")
    say(console, page)
    say(console, f"Model, masks and record: {cell.folder}")


def show_comparison(run: "RunFolder", cells: "list[Cell]") -> None:
    """Print one table of methods × sparsities."""
    from brainsurgeon.app.report import read_record
    from brainsurgeon.app.report.charts import WIDE
    from brainsurgeon.app.report.output import put
    from brainsurgeon.app.report.pictures import curve
    from brainsurgeon.app.report.record import unit
    from brainsurgeon.app.report.tables import comparison, figure

    record = read_record([run.path])
    console, picture = Console(), None
    if len(record.sparsities) > 1:
        drawing = curve(record, record.metric, WIDE)
        picture = put(run.path, "comparison.svg", drawing.svg(standalone=True))
    page = report(run.path)
    dense = record.of_dense(record.metric)
    before = "" if dense is None else f"; the dense model has {figure(dense, record.metric)}{unit(record.metric)}"
    say(console, f"{record.metric.capitalize()}, the best in bold{before}")
    console.print(as_rich(comparison(record)))
    if picture is not None:
        say(console, f"Picture: {picture}")
    say(console, page)
    say(console, f"{len(cells)} pruned models: {cells[0].folder.parent}")


def report(folder: Path) -> str:
    """Write the page, with its main picture, into a run's folder; return the words that say so."""
    from brainsurgeon.app.report import write_report

    return f"Report: {write_report([folder], folder, files=False)}"


def say(console: Console, words: str) -> None:
    """Print a line as it is: names are no markup, and the terminal wraps it."""
    console.print(words, markup=False, emoji=False, highlight=False, soft_wrap=True)


def as_rich(table: "Words") -> Table:
    """Return a table as the terminal shows it."""
    shown = Table()
    for number, name in enumerate(table.head):
        shown.add_column(Text(name), overflow="fold", justify="right" if number else "left")
    for number, row in enumerate(table.rows):
        shown.add_row(*(Text(cell, "bold" if (number, k) in table.best else "") for k, cell in enumerate(row)))
    return shown

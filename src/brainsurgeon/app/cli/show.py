"""What the commands print of a finished run."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from brainsurgeon.app.report.tables import Table as Words
    from brainsurgeon.app.runs import Cell, RunFolder


def show_result(run: "RunFolder", cell: "Cell") -> None:
    """Print the counts of a pruned model, what it cost, and where everything is."""
    from brainsurgeon.app.report import read_record
    from brainsurgeon.app.report.record import unit
    from brainsurgeon.app.report.tables import figure, layers, shown

    record = read_record([run.path])
    outcome = record.outcomes[0]
    console = Console()
    pruned, size = outcome.result["pruned"], outcome.result["size"]
    console.print(f"[bold]{cell.method}[/] at {cell.sparsity:g}: {pruned:,} of {size:,} weights pruned")
    for metric in record.metrics:
        dense = record.of_dense(metric)
        before = f"{figure(dense, metric)}{unit(metric)} dense, " if dense is not None else ""
        console.print(f"{metric}: {before}[bold]{shown(outcome, metric)}{unit(metric)}[/] pruned")
    console.print(as_rich(layers(outcome)))
    for note in outcome.result["notes"]:
        console.print(f"Note: {note}", soft_wrap=True)
    report(run.path, console)
    console.print(f"Model, masks and record: {cell.folder}", highlight=False, soft_wrap=True)


def show_comparison(run: "RunFolder", cells: "list[Cell]") -> None:
    """Print one table of methods × sparsities."""
    from brainsurgeon.app.report import read_record
    from brainsurgeon.app.report.charts import WIDE
    from brainsurgeon.app.report.pictures import curve
    from brainsurgeon.app.report.record import unit
    from brainsurgeon.app.report.tables import comparison, figure

    record = read_record([run.path])
    console = Console()
    dense = record.of_dense(record.metric)
    before = "" if dense is None else f"; the dense model has {figure(dense, record.metric)}{unit(record.metric)}"
    console.print(f"{record.metric.capitalize()}, the best in bold{before}", highlight=False)
    console.print(as_rich(comparison(record)))
    if len(record.sparsities) > 1:
        picture = run.path / "comparison.svg"
        picture.write_text(curve(record, record.metric, WIDE).svg(standalone=True))
        console.print(f"Picture: {picture}", highlight=False, soft_wrap=True)
    report(run.path, console)
    console.print(f"{len(cells)} pruned models: {cells[0].folder.parent}", highlight=False, soft_wrap=True)


def report(folder: Path, console: Console) -> None:
    """Write the page, with its main picture, into a run's folder and say so."""
    from brainsurgeon.app.report import write_report

    page = write_report([folder], folder, files=False)
    console.print(f"Report: {page}", highlight=False, soft_wrap=True)


def as_rich(table: "Words") -> Table:
    """Return a table as the terminal shows it."""
    shown = Table()
    shown.add_column(table.head[0], overflow="fold")
    for name in table.head[1:]:
        shown.add_column(name, justify="right")
    for number, row in enumerate(table.rows):
        marked = (f"[bold]{cell}[/]" if (number, k) in table.best else cell for k, cell in enumerate(row))
        shown.add_row(*marked)
    return shown

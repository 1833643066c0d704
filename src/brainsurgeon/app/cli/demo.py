"""`brainsurgeon demo`: every method on a small trained network and real digits, both in the package."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brainsurgeon.app.cli.show import say

if TYPE_CHECKING:
    from brainsurgeon.paper.reproduce.cells import Cell

METHODS = ("mp", "wf-s", "cbs-s", "wf", "cbs")
SPARSITIES = (0.5, 0.8, 0.9, 0.95, 0.98)


def demo(
    picture: Annotated[Path, typer.Option(help="Where to draw accuracy against sparsity.")] = Path(
        "brainsurgeon-demo.svg"
    ),
    num_gradients: Annotated[int, typer.Option(help="K, the gradients of the quadratic model.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of all random draws.")] = 0,
) -> None:
    """Prune a network that comes with the package by every method at several sparsities: no download, a minute."""
    from rich.console import Console
    from rich.table import Table

    from brainsurgeon.paper.accuracy import accuracy
    from brainsurgeon.paper.datasets.embedded import load_demo
    from brainsurgeon.paper.reproduce.tables import TITLES
    from brainsurgeon.pruning.surgery import Surgery

    console, started = Console(), time.perf_counter()
    model, data = load_demo()
    dense = accuracy(model, data)
    console.print(
        f"MLPNet (784→40→20→10, {dense:.2f}% right on {len(data.test_targets):,} test digits), "
        f"pruned with {len(data.train_targets):,} training digits, no retraining:"
    )
    surgery = Surgery(model, data.train(), num_gradients=num_gradients, damping=1e-3, seed=seed)
    table = Table("sparsity", "weights left", *(TITLES[method] for method in METHODS))
    cells: list[Cell] = []
    for sparsity in SPARSITIES:
        results = {method: surgery.prune(sparsity, method) for method in METHODS}
        found = {method: accuracy(result.model, data) for method, result in results.items()}
        cells += [{"method": method, "sparsity": sparsity, "accuracy": value} for method, value in found.items()]
        best = max(found.values())
        left = results["mp"].size - results["mp"].pruned
        marked = [f"[bold]{value:.2f}[/]" if value == best else f"{value:.2f}" for value in found.values()]
        table.add_row(f"{sparsity:g}", f"{left:,}", *marked)
    console.print(table)
    console.print(f"Test accuracy in %, the best in bold; {time.perf_counter() - started:.0f} s in all.")
    _draw(cells, dense, picture)
    say(console, f"A picture is in {picture}.")


def _draw(cells: "list[Cell]", dense: float, picture: Path) -> None:
    from brainsurgeon.app.report.charts import WIDE, Series, by_sparsity
    from brainsurgeon.paper.reproduce.tables import TITLES

    found = {method: [cell for cell in cells if cell["method"] == method] for method in METHODS}
    series = [Series(TITLES[m], [(c["sparsity"], c["accuracy"]) for c in own]) for m, own in found.items()]
    drawing = by_sparsity("test accuracy of the demonstration network", "%", series, dense, WIDE)
    picture.write_text(drawing.svg(standalone=True))

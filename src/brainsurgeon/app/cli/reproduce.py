"""`brainsurgeon reproduce`: the paper's tables and figures, ours beside the published."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class What(StrEnum):
    """A table or figure of the paper."""

    table1 = "table1"
    table2 = "table2"
    table3 = "table3"
    table4 = "table4"
    table5 = "table5"
    figure3 = "figure3"
    figure4 = "figure4"
    figure5 = "figure5"
    runtime = "runtime"
    all = "all"


QUICK = 3  # sparsities, the highest


def reproduce(
    what: Annotated[What, typer.Argument(help="Which table or figure, or all.")],
    results: Annotated[
        Path | None, typer.Option(help="Where finished cells are kept.", show_default="experiments/results")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Where figures are drawn.", show_default="docs/figures in a clone, else figures")
    ] = None,
    checkpoints: Annotated[
        list[Path] | None,
        typer.Option(help="Folders with the trained networks.", show_default="experiments/checkpoints"),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="The folder the data were fetched into.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda", show_default="cuda if present")] = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds, instead of the protocol's own number.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed, the three highest sparsities.")] = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Only show what is recorded, here or with the package.")
    ] = False,
) -> None:
    """Compute what is missing of a table or figure, and show it beside the published figures.

    A finished cell (one method, sparsity and seed) is never computed again. Nothing is chosen on test data.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    from brainsurgeon.paper.reproduce.protocol import PROTOCOLS
    from brainsurgeon.paper.reproduce.show import IN_CLONE, NETWORKS, recorded_folder, show

    results = results or (recorded_folder() if recorded else IN_CLONE)
    figures = figures or Path("docs/figures" if IN_CLONE.is_dir() else "figures")
    wanted = [item for item in What if item != What.all] if what == What.all else [what]
    for network in dict.fromkeys(name for item in wanted for name in NETWORKS[item]):
        if not recorded:
            _compute(PROTOCOLS[network], results, checkpoints, root, device, 1 if quick else seeds, quick)
    console = Console()
    for item in wanted:
        text = show(item.value, NETWORKS[item], results, figures)
        fits = all(len(line) <= console.width for line in text.splitlines() if line.startswith("|"))
        if fits:
            console.print(Markdown(text))
        else:  # a table that is cut shows nothing
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def _compute(protocol, results, checkpoints, root, device, seeds, quick):  # type: ignore[no-untyped-def]
    import torch

    from brainsurgeon.events import silent
    from brainsurgeon.events.progress import watch
    from brainsurgeon.paper.reproduce.cells import compute

    with watch(silent, progress=None) as callback:
        compute(
            protocol,
            results,
            [*(checkpoints or []), Path("experiments/checkpoints")],
            sparsities=protocol.sparsities[-QUICK:] if quick else None,
            seeds=None if seeds is None else range(seeds),
            root=root,
            device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
            callback=callback,
        )

"""`brainsurgeon inspect`: what would be pruned, and what it would take, before anything runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from brainsurgeon.app.cli import options as o
from brainsurgeon.app.cli.show import as_rich, say

if TYPE_CHECKING:
    from brainsurgeon.app.forecast import Inspection
    from brainsurgeon.app.recipe import Recipe
    from brainsurgeon.app.target import Target

DOES_NOT_FIT = 3


def inspect(
    target: o.TargetArgument = None,
    sparsity: o.SparsityOption = None,
    method: o.MethodOption = None,
    recipe: o.RecipeOption = None,
    checkpoint: o.CheckpointOption = None,
    text: o.TextOption = None,
    window: o.WindowOption = None,
    on_disk: o.OnDiskOption = False,
    include: o.IncludeOption = None,
    exclude: o.ExcludeOption = None,
    budget: o.BudgetOption = None,
    pattern: o.PatternOption = None,
    effort: o.EffortOption = None,
    max_seconds: o.SecondsOption = None,
    stages: o.StagesOption = None,
    num_gradients: o.NumGradientsOption = None,
    fisher: o.FisherOption = None,
    blocks: o.BlocksOption = None,
    damping: o.DampingOption = None,
    dtype: o.DtypeOption = None,
    device: o.DeviceOption = None,
    seed: o.SeedOption = None,
    settings: o.SetOption = None,
    timed: Annotated[bool, typer.Option("--time/--no-time", help="Time a few gradients and losses.")] = True,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Also what the loss would feel of each layer at several sparsities.")
    ] = False,
    measured: Annotated[
        bool, typer.Option("--measure/--no-measure", help="With --sensitivity: prune each layer alone, and measure.")
    ] = True,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="With --sensitivity: a folder (a run's, too) for sensitivity.json, budget.yaml, which --budget takes, "
            "and a page with heat maps.",
            metavar="FOLDER",
        ),
    ] = None,
) -> None:
    """Show what would be pruned, layer by layer, and the memory and time that it will take on this machine.

    Nothing is pruned, and nothing is written without --output. The exit status is 3 where the run would not fit into
    memory.
    """
    from brainsurgeon.app.forecast import inspect as look
    from brainsurgeon.app.target import load_target

    if output is not None and not sensitivity:
        raise typer.BadParameter("--output is where a sensitivity is written: give --sensitivity, too")
    full = o.gather(recipe, settings, o.keys_given(locals()))
    loaded = load_target(full.target, full.arguments, full.checkpoint, full.seed)
    found = look(full, loaded, timed)
    console = Console()
    console.print(_layers(found))
    share = f"{found.count:,} of {found.size:,} weights ({found.count / found.size:.4g})"
    widest = f", the widest of {found.widest:,} weights" if found.blocks > 1 else ""
    console.print(f"To prune: [bold]{share}[/]. Curvature in {found.blocks:,} block{'s' * (found.blocks > 1)}{widest}.")
    _say_needs(console, found)
    if found.problem:
        Console(stderr=True).print(f"[bold red]It does not fit:[/] {escape(found.problem)}", soft_wrap=True)
        raise typer.Exit(DOES_NOT_FIT)
    if sensitivity:
        _say_sensitivity(console, full, loaded, measured, output)


def _say_sensitivity(console: Console, recipe: "Recipe", target: "Target", measured: bool, output: Path | None) -> None:
    """Find out what the loss would feel of each layer, show it, and write it where that is wanted."""
    from brainsurgeon.app.report.felt import FILE, File, table, write_page
    from brainsurgeon.app.report.output import put
    from brainsurgeon.files.writing import plain
    from brainsurgeon.pruning.sensitivity import sensitivity

    common = recipe.common(target.exclude)
    found = sensitivity(target.model, target.data, target.loss, measure=measured, **common)
    sparsity = recipe.sparsities[0]
    file = File.model_validate_json(json.dumps(plain(found.to_dict(sparsity))))
    console.print(as_rich(table(file.sensitivity, file.budget, brief=True)))
    say(console, f"{file.sensitivity.words()} The budget is for sparsity {sparsity:g}.")
    for note in found.notes:
        say(console, f"Note: {note}")
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        put(output, FILE, json.dumps(plain(found.to_dict(sparsity)), indent=2))
        budget = found.save(output / "budget.yaml", sparsity)
        say(console, f"Page: {write_page(file, output, f'Sensitivity of {recipe.target}')}")
        say(console, f"Budget, to be edited: {budget} (brainsurgeon prune … --budget {budget})")


def _layers(found: "Inspection") -> Table:
    table = Table()
    table.add_column("parameter", overflow="fold")
    for name in ("shape", "weights", "pruned, evenly" if found.even else "pruned by magnitude", "sparsity"):
        table.add_column(name, justify="right")
    for layer in found.layers:
        shown, shape = Text(layer.name), "×".join(map(str, layer.shape))
        if layer.pruned is None:
            table.add_row(shown, shape, f"{layer.size:,}", "left alone", "", style="dim")
        else:
            table.add_row(shown, shape, f"{layer.size:,}", f"{layer.pruned:,}", f"{layer.pruned / layer.size:.1%}")
    return table


def _say_needs(console: Console, found: "Inspection") -> None:
    from brainsurgeon.network.memory import readable

    total = sum(found.memory.values())
    parts = ", ".join(f"{name} {readable(value)}" for name, value in found.memory.items())
    free = "unknown" if found.free is None else readable(found.free)
    console.print(f"Memory: about [bold]{readable(total)}[/] ({parts}); free: {free}.", highlight=False, soft_wrap=True)
    if found.seconds:
        parts = ", ".join(f"{escape(name)} {_time(value)}" for name, value in found.seconds.items())
        whole = _time(sum(found.seconds.values()))
        rough = "at least" if found.staged else "very roughly"
        console.print(
            f"Time: {rough} [bold]{whole}[/], from a few samples timed here ({parts}).",
            highlight=False,
            soft_wrap=True,
        )


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

"""`brainsurgeon sweep`: the network at each of several sparsities, from one run."""

from typing import Annotated

import typer

from brainsurgeon.app.cli import options as o

SPARSITIES = (0.5, 0.8, 0.9, 0.95)


def sweep(
    target: o.TargetArgument = None,
    sparsities: Annotated[
        list[float] | None,
        typer.Option("--sparsity", "-s", help="Repeatable.", show_default="0.5 0.8 0.9 0.95", rich_help_panel=o.METHOD),
    ] = None,
    method: o.MethodOption = None,
    recipe: o.RecipeOption = None,
    checkpoint: o.CheckpointOption = None,
    include: o.IncludeOption = None,
    exclude: o.ExcludeOption = None,
    budget: o.BudgetOption = None,
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
    output: o.OutputOption = None,
    resume: o.ResumeOption = None,
    trust: o.TrustOption = False,
    track: o.TrackOption = None,
    quiet: o.QuietOption = False,
) -> None:
    """Keep the network at each of several sparsities on the way of one run: one table, one picture, one report.

    A method that trains goes on from sparsity to sparsity, at the cost of one run; a finished network is never lost.

    [bold]Examples[/]

    brainsurgeon sweep demo -s 0.8 -s 0.9 -s 0.95

    brainsurgeon sweep model.py:build --checkpoint trained.safetensors --max-seconds 600

    brainsurgeon sweep --resume runs/20260101-120000-sweep
    """
    from brainsurgeon.app.cli.run import carry_out, start
    from brainsurgeon.app.cli.show import show_comparison

    given = o.keys_given(locals())
    if not (recipe or resume):
        given |= {"sparsity": sparsities or list(SPARSITIES)}
    if not resume:
        given |= {"sweep": True}
    full = o.gather_new(resume, output, recipe, settings, given)
    run = start("sweep", full, output, resume, trust)
    show_comparison(run, carry_out(run, "sweep", track, quiet))

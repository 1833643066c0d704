"""`brainsurgeon compare`: several methods at several sparsities, from the same gradients."""

from typing import Annotated

import typer

from brainsurgeon.app.cli import options as o

METHODS = ("mp", "wf", "cbs-s", "cbs")
SPARSITIES = (0.5, 0.8, 0.9, 0.95)


def compare(
    target: o.TargetArgument = None,
    sparsities: Annotated[
        list[float] | None,
        typer.Option("--sparsity", "-s", help="Repeatable.", show_default="0.5 0.8 0.9 0.95", rich_help_panel=o.METHOD),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", help="Repeatable.", show_default="mp wf cbs-s cbs", rich_help_panel=o.METHOD),
    ] = None,
    recipe: o.RecipeOption = None,
    checkpoint: o.CheckpointOption = None,
    include: o.IncludeOption = None,
    exclude: o.ExcludeOption = None,
    budget: o.BudgetOption = None,
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
    """Compare methods × sparsities on a model: one table, one picture, one report. A finished cell is never lost.

    [bold]Examples[/]

    brainsurgeon compare demo -m mp -m cbs -s 0.9 -s 0.95

    brainsurgeon compare model.py:build --checkpoint trained.safetensors
    """
    from brainsurgeon.app.cli.run import carry_out, start
    from brainsurgeon.app.cli.show import show_comparison

    given = o.keys_given(locals())
    if not (recipe or resume):
        given |= {"method": methods or list(METHODS), **o.usual_sparsities(sparsities, budget, SPARSITIES)}
    full = o.gather_new(resume, output, recipe, settings, given)
    run = start("compare", full, output, resume, trust)
    show_comparison(run, carry_out(run, "compare", track, quiet))

"""`brainsurgeon prune`: one model, one method, one sparsity or a goal."""

import typer

from brainsurgeon.app.cli import options as o


def prune(
    target: o.TargetArgument = None,
    sparsity: o.SparsityOption = None,
    method: o.MethodOption = None,
    max_drop: o.MaxDropOption = None,
    metric: o.MetricOption = None,
    target_bytes: o.TargetBytesOption = None,
    target_macs: o.TargetMacsOption = None,
    recipe: o.RecipeOption = None,
    checkpoint: o.CheckpointOption = None,
    text: o.TextOption = None,
    test_text: o.TestTextOption = None,
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
    output: o.OutputOption = None,
    resume: o.ResumeOption = None,
    trust: o.TrustOption = False,
    track: o.TrackOption = None,
    quiet: o.QuietOption = False,
) -> None:
    """Prune a model, into a folder with the model, its masks, a report and the recipe that makes it again.

    [bold]Examples[/]

    brainsurgeon prune demo --sparsity 0.95

    brainsurgeon prune model.py:build --max-drop 1%

    brainsurgeon prune model.py:build --checkpoint trained.safetensors -s 0.9 -k 2000

    brainsurgeon prune hf:FOLDER --text calibration.txt --sparsity 0.5 --method layerwise

    brainsurgeon prune hf:FOLDER --text calibration.txt -s 0.5 -m layerwise --on-disk

    torchrun --nproc-per-node 8 --no-python brainsurgeon prune hf:FOLDER --text calibration.txt -s 0.5 -m layerwise

    brainsurgeon prune --recipe recipe.yaml

    brainsurgeon prune --resume runs/20260101-120000-cbs-0.9
    """
    from brainsurgeon.app.cli.ranks import check_methods, joined
    from brainsurgeon.app.cli.run import carry_out, check_resumed, start
    from brainsurgeon.app.cli.show import show_result

    full = o.gather_new(resume, output, recipe, settings, o.keys_given(locals()))
    if full is not None and len(full.methods) * len(full.sparsities) > 1:
        raise typer.BadParameter("this recipe has several methods or sparsities: use `brainsurgeon compare`")
    if resume is not None:
        check_resumed(resume, trust)
    with joined(output, resume) as place:
        run = start("prune", full, place.output, place.resume, trust=True)
        check_methods(run.recipe.methods)
        cells = carry_out(run, "prune", track if place.first else None, quiet or not place.first)
    if place.first:
        show_result(run, cells[0])

"""`brainsurgeon shrink`: whole channels, neurons and heads go, and a smaller dense network comes out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainsurgeon.app.cli import options as o

if TYPE_CHECKING:
    from torch import nn

    from brainsurgeon.app.target import Target


def _share(text: str) -> float:
    """Read 50% or 0.5."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise typer.BadParameter(f"expected a share such as 50% or 0.5, got {text!r}") from error


def shrink(
    target: o.TargetArgument = None,
    macs: Annotated[
        float | None,
        typer.Option(
            parser=_share, metavar="SHARE", help="The multiply-adds that may stay, as 50%.", show_default="50%"
        ),
    ] = None,
    parameters: Annotated[
        float | None, typer.Option(parser=_share, metavar="SHARE", help="Or the parameters that may stay.")
    ] = None,
    units: Annotated[
        float | None, typer.Option(parser=_share, metavar="SHARE", help="Or the units that stay in every group.")
    ] = None,
    checkpoint: o.CheckpointOption = None,
    include: o.IncludeOption = None,
    exclude: o.ExcludeOption = None,
    samples: Annotated[int, typer.Option(help="Calibration samples.", min=1)] = 1000,
    multiple: Annotated[int, typer.Option(help="Keep multiples of so many units; kernels like 8.", min=1)] = 1,
    batch: Annotated[int, typer.Option(help="Samples in the call that is timed.", min=1)] = 1,
    epochs: Annotated[int, typer.Option(help="Fine-tune for so many epochs; 0 does not.", min=0)] = 0,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of the fine-tune, by AdamW.", show_default="0.00002")
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx too, checked in onnxruntime.")] = False,
    seed: Annotated[int, typer.Option(help="Of all random draws.")] = 0,
    device: o.DeviceOption = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A new folder.", metavar="FOLDER", rich_help_panel=o.RUN)
    ] = Path("shrunk"),
    quiet: o.QuietOption = False,
) -> None:
    """Remove whole channels, neurons, heads and hidden units; write the smaller network, its record and a summary.

    [bold]Examples[/]

    brainsurgeon shrink demo --macs 50%

    brainsurgeon shrink model.py:build --checkpoint trained.safetensors --parameters 30% --epochs 5
    """
    from brainsurgeon.app.scores import measure
    from brainsurgeon.app.target import load_target
    from brainsurgeon.files.folder import check_place
    from brainsurgeon.structured.shrink import shrink as run

    if target is None:
        raise typer.BadParameter("which model? Give file.py:function, or `demo`")
    check_place(output)
    made = load_target(target, None, checkpoint, seed)
    before = measure(made)
    wanted = {"macs": macs, "parameters": parameters, "units": units}
    result = run(
        made.model,
        made.data,
        **(wanted if any(value is not None for value in wanted.values()) else {"macs": 0.5}),
        loss=made.loss,
        include=include or None,
        exclude=exclude or made.exclude,
        seed=seed,
        device=device,
        progress=False if quiet else None,
        max_samples=samples,
        multiple=multiple,
        batch=batch,
    )
    lines = [result.summary(), *_scored(before, _measured(made, result.model), "at once")]
    if epochs:
        given: dict[str, Any] = {"epochs": epochs, "seed": seed, "progress": False if quiet else None}
        given |= {} if learning_rate is None else {"learning_rate": learning_rate}
        try:
            tuned = result.finetune(made.model, made.data, made.loss, **given)
        except BaseException:  # what was shrunk is not lost with what trains it
            result.save(output)
            print(f"saved in {output}, not fine-tuned", file=sys.stderr)
            raise
        result.model.load_state_dict(tuned.model.state_dict())
        lines += [tuned.summary(), *_scored(before, _measured(made, result.model), "fine-tuned")]
    result.save(output)
    (output / "summary.txt").write_text("\n".join(lines) + "\n")
    if onnx:
        from brainsurgeon.app.cli.pruned import example_of
        from brainsurgeon.export import to_onnx

        found = to_onnx(result.model, example_of(made, 2), output / "model.onnx")
        lines.append(f"onnxruntime differs by {found.difference:.1g} of the largest output")
    print("\n".join([*lines, f"saved in {output}"]))


def _measured(made: "Target", model: "nn.Module") -> dict[str, float]:
    from dataclasses import replace

    from brainsurgeon.app.scores import measure

    return measure(replace(made, model=model))


def _scored(before: dict[str, float], after: dict[str, float], when: str) -> list[str]:
    return [f"{name}: {before[name]:.4g} before, {value:.4g} {when}" for name, value in after.items()]

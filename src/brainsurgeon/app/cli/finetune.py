"""`brainsurgeon finetune`: train the kept weights for a few epochs; the pruned ones stay exactly zero."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from brainsurgeon.app.cli import pruned as p
from brainsurgeon.training.settings import OPTIMIZERS, FinetuneSettings

DEFAULTS = FinetuneSettings()


def finetune(
    folder: p.FolderArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A new folder for the outcome.", show_default="FOLDER-finetuned"),
    ] = None,
    target: p.TargetOption = None,
    cell: p.CellOption = None,
    trust: p.TrustOption = False,
    epochs: Annotated[int, typer.Option(help="At most so many.")] = DEFAULTS.epochs,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = DEFAULTS.learning_rate,
    batch_size: Annotated[int, typer.Option(help="Samples in a step.")] = DEFAULTS.batch_size,
    optimizer: Annotated[str, typer.Option(help=f"One of {', '.join(OPTIMIZERS)}.")] = DEFAULTS.optimizer,
    weight_decay: Annotated[float, typer.Option(help="Of every trained weight.")] = DEFAULTS.weight_decay,
    patience: Annotated[
        int, typer.Option(help="Stop after so many epochs without a better held-out loss; 0 never stops.")
    ] = DEFAULTS.patience or 0,
    held_out_share: Annotated[
        float, typer.Option(help="The share of the data that is held out; 0 keeps the last weights.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Of the split and the order.")] = 0,
    device: p.DeviceOption = None,
    compressed: Annotated[bool, typer.Option("--compressed", help="Save bits and values.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No bar.")] = False,
) -> None:
    """Fine-tune a pruned model with its zeros kept; epochs are chosen on held-out training data, never on test data."""
    from brainsurgeon.app.origin import keep_origin
    from brainsurgeon.app.scores import measure
    from brainsurgeon.files import save
    from brainsurgeon.files.folder import check_place
    from brainsurgeon.network.zeros import set_zeros
    from brainsurgeon.training.finetune import finetune as run

    opened = p.open_pruned(folder, target, cell, device, trust)
    made, place = opened.target, output or Path(f"{folder}-finetuned")
    check_place(place)
    settings = FinetuneSettings(
        epochs,
        learning_rate,
        batch_size,
        optimizer,
        weight_decay,
        patience=patience or None,
        held_out_share=held_out_share,
        seed=seed,
    )
    before = measure(made)

    def keep(said: dict[str, Any]) -> None:
        record = {**(opened.saved.record or {}), "finetuned": {"before": before, **said}}
        save(made.model, place, opened.saved.masks, compressed=compressed, record=record)
        keep_origin(place, folder, target)

    try:
        tuned = run(
            made.model,
            made.data,
            made.loss,
            settings,
            masks=opened.saved.masks,
            in_place=True,
            progress=False if quiet else None,
        )
    except KeyboardInterrupt:
        set_zeros(made.model, opened.saved.masks)  # in the midst of a step
        keep({"interrupted": True})
        print(f"saved in {place} as far as it was trained; no epoch was chosen", file=sys.stderr)
        raise
    try:
        after = measure(made)
    except BaseException:  # what was trained is not lost with a score that fails
        keep(tuned.settings)
        print(f"saved in {place}", file=sys.stderr)
        raise
    keep({**tuned.settings, "after": after})
    print(tuned.summary())
    for name in before:
        print(f"{name}: {before[name]:.4g} before, {after[name]:.4g} after")
    print(f"saved in {place}")

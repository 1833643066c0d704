"""`brainsurgeon train`: train a network of the paper from scratch."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainsurgeon.paper.train_settings import DEFAULTS, default_settings

if TYPE_CHECKING:
    from brainsurgeon.paper.datasets import ImageData


def train(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(DEFAULTS)}.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The checkpoint to write.", show_default="NAME.safetensors"),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs, instead of the network's own number.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images in a step.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, order and augmentation.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda", show_default="cuda if present")] = None,
    root: Annotated[Path | None, typer.Option(help="The folder the data were fetched into.")] = None,
    images: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="For ImageNet: training and validation images.", metavar="TRAIN VALIDATION"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was stopped.")] = False,
) -> None:
    """Train a network from scratch; writes its weights and a record of how they came about.

    The number of epochs is fixed and the last weights are kept. Test images are looked at once, at the end. After each
    epoch its state is kept beside the output: a training that was stopped goes on with the same command and --resume.
    """
    import torch

    from brainsurgeon.events import silent
    from brainsurgeon.events.progress import watch
    from brainsurgeon.files.writing import check_writable
    from brainsurgeon.paper.train import save_trained
    from brainsurgeon.paper.train import train as train_network
    from brainsurgeon.paper.train_state import state_of

    given = {"epochs": epochs, "learning_rate": learning_rate, "batch_size": batch_size, "seed": seed}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    settings = replace(default_settings(name), **changes)
    path = output or Path(f"{name}.safetensors")
    state = state_of(path)
    if state.exists() and not resume:
        raise FileExistsError(f"a training of {path} was stopped: go on with --resume, or delete {state}")
    if resume and not state.exists() and path.exists():
        raise FileExistsError(f"{path} is finished: there is nothing to go on with")
    check_writable(path.parent)
    data = _load(settings.data, root, images)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    with watch(silent, progress=None) as callback:
        model, record = train_network(name, data, settings, device, callback, state)
    save_trained(model, record, path)
    state.unlink()
    print(f"{name}: {record.test_accuracy:.2f}% right on the test images; weights in {path}")


def _load(name: str, root: Path | None, images: tuple[Path, Path] | None) -> "ImageData":
    if name != "imagenet":
        from brainsurgeon.paper.datasets import load

        return load(name, root)
    if images is None:
        raise ValueError("This network is trained on ImageNet: give --images TRAIN VALIDATION, two folders.")
    from brainsurgeon.paper.datasets.imagenet import load_imagenet

    return load_imagenet(*images)

"""Training the paper's networks from scratch, with settings that are recorded beside the weights.

The number of epochs is fixed beforehand and the last weights are kept: nothing is chosen on test images,
which are looked at once, when training is over.
"""

import json
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from brainsurgeon._version import __version__
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event, silent
from brainsurgeon.files.checkpoint import save_checkpoint
from brainsurgeon.files.writing import write_whole
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.models import build
from brainsurgeon.paper.train_settings import DEFAULTS, TrainSettings, default_settings
from brainsurgeon.paper.train_state import TrainingState
from brainsurgeon.samples.augment import random_crop, random_flip

__all__ = ["DEFAULTS", "TrainRecord", "TrainSettings", "default_settings", "save_trained", "train"]


@dataclass(frozen=True)
class TrainRecord:
    """What was trained, how, and what came out; accuracies in percent."""

    network: str
    settings: TrainSettings
    train_images: int
    test_accuracy: float
    epochs: list[dict[str, float]] = field(default_factory=list)
    device: str = "cpu"
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the record as JSON."""
        write_whole(Path(path), json.dumps(asdict(self), indent=2) + "\n")


def train(
    name: str,
    data: ImageData,
    settings: TrainSettings | None = None,
    device: str | torch.device = "cpu",
    callback: Callback = silent,
    state: Path | None = None,
) -> tuple[nn.Module, TrainRecord]:
    """Train a network from scratch and give it back with the record of its training.

    The settings default to the network's entry in `DEFAULTS`. Initial weights, order of images and
    augmentation all follow from `settings.seed`. The callback is told of every epoch. With a file `state` the training
    goes on from where that was left after an epoch, and leaves it there.
    """
    settings = settings or default_settings(name)
    generator = torch.Generator().manual_seed(settings.seed)
    model = build(name, generator).to(device)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.momentum > 0,
    )
    inputs, targets = data.train_inputs.to(device), data.train_targets.to(device)
    kept = TrainingState(state, name, data, settings, str(device)) if state else None
    epochs, spent = kept.load(model, optimizer, generator) if kept else ([], 0.0)
    start = time.perf_counter() - spent
    for epoch in range(len(epochs), settings.epochs):
        values = _run_epoch(model, optimizer, data, inputs, targets, settings, epoch, generator)
        epochs.append(values)
        if kept:
            kept.save(model, optimizer, generator, epochs, time.perf_counter() - start)
        callback(Event("train", epoch + 1, settings.epochs, values))
    model.eval()
    return model, TrainRecord(
        network=name,
        settings=settings,
        train_images=len(targets),
        test_accuracy=accuracy(model, data),
        epochs=epochs,
        device=str(device),
        seconds=time.perf_counter() - start,
        versions={"brainsurgeon": __version__, "torch": torch.__version__},
    )


def save_trained(model: nn.Module, record: TrainRecord, path: str | Path) -> None:
    """Write the weights to `path` as safetensors and the record beside it, with the ending .json."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(model, path, {"network": record.network, "test_accuracy": f"{record.test_accuracy:.2f}"})
    record.save(path.with_suffix(".json"))


def _run_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: ImageData,
    inputs: Tensor,
    targets: Tensor,
    settings: TrainSettings,
    epoch: int,
    generator: torch.Generator,
) -> dict[str, float]:
    model.train()
    batches = torch.randperm(len(targets), generator=generator).to(inputs.device).split(settings.batch_size)
    loss_sum, right = torch.zeros((), device=inputs.device), torch.zeros((), device=inputs.device)
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = settings.rate_at(epoch + (step + 1) / len(batches))
        images, labels = _augment(data.normalize(inputs[batch]), settings, generator), targets[batch]
        logits = model(images)
        loss = cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.detach() * len(batch)
        right += (logits.argmax(-1) == labels).sum()
    mean_loss = loss_sum.item() / len(targets)
    if not math.isfinite(mean_loss):
        raise BrainsurgeonError(
            f"Training diverged in epoch {epoch + 1}: the loss is {mean_loss}. "
            f"Lower the learning rate, which is {settings.learning_rate}."
        )
    return {"loss": mean_loss, "train_accuracy": 100 * right.item() / len(targets)}


def _augment(images: Tensor, settings: TrainSettings, generator: torch.Generator) -> Tensor:
    if settings.crop_padding:
        images = random_crop(images, settings.crop_padding, generator)
    return random_flip(images, generator) if settings.flip else images

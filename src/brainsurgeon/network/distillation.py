"""The dense network as a teacher: the distance of a model's outputs, and of its layers' features, from the dense."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.events.clock import pulse
from brainsurgeon.network.loss import LossLike, OutputLoss, output_loss
from brainsurgeon.network.weights import NORMALISATION
from brainsurgeon.samples.batches import Batch, batch_size


@dataclass(frozen=True)
class Lesson:
    """What a training step minimises: the loss, the distance from the dense outputs, and from its layers' features.

    `share` is that of the distance, the rest is the loss. For classes the distance is T² times the Kullback–Leibler
    divergence at the temperature T, else the squared difference relative to the outputs' variance. `features` weighs
    the mean over the watched layers of ‖a − ā‖²/Var(ā).
    """

    share: float = 0.0
    temperature: float = 1.0
    features: float = 0.0


class Teacher:
    """The dense model, and a lesson; `loss(model, batch)` is what the student's training step minimises."""

    def __init__(self, dense: nn.Module, loss: LossLike, lesson: Lesson, probe: Batch):
        self.dense, self.lesson = dense, lesson
        self.parts = output_loss(loss, dense, probe)
        if self.parts is None and (lesson.share or lesson.features):
            self.lesson = Lesson()

    @property
    def can_teach(self) -> bool:
        """Whether the loss lets the model's outputs be compared with the dense ones."""
        return self.parts is not None

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[Callable[[Batch, Callable[[], Any]], Tensor]]:
        """Give a way from a batch and a student's forward pass (its outputs) to the value of the lesson."""
        ours: list[Tensor] = []
        theirs: list[Tensor] = []
        hooks = []
        if self.lesson.features:
            for network, into in ((model, ours), (self.dense, theirs)):
                hooks += [module.register_forward_hook(_note(into)) for module in watched(network)]

        def value(batch: Batch, student: Callable[[], Any]) -> Tensor:
            ours.clear()
            theirs.clear()
            return self._value(batch, student(), ours, theirs)

        try:
            yield value
        finally:
            for hook in hooks:
                hook.remove()

    def outputs(self, model: nn.Module, batch: Batch) -> Any:
        """Return what a model gives for a batch."""
        assert self.parts is not None  # asked for only where `can_teach`
        return self.parts.outputs(model, batch)

    def _value(self, batch: Batch, found: Any, ours: list[Tensor], theirs: list[Tensor]) -> Tensor:
        parts, lesson = self.parts, self.lesson
        assert parts is not None
        terms = []
        if lesson.share < 1:
            terms.append((1 - lesson.share) * parts.loss(found, batch))
        if lesson.share or lesson.features:
            with torch.no_grad():
                wanted = parts.outputs(self.dense, batch)
            if lesson.share:
                terms.append(lesson.share * parts.distance(found, wanted, lesson.temperature))
        if lesson.features and ours:
            pairs = zip(ours, theirs, strict=True)
            terms.append(lesson.features * torch.stack([_feature_distance(a, b) for a, b in pairs]).mean())
        return torch.stack(terms).sum()


def watched(model: nn.Module) -> list[nn.Module]:
    """Return the layers whose outputs are compared: normalisation layers, or linear layers where there are none."""
    norms: list[nn.Module] = [module for module in model.modules() if isinstance(module, NORMALISATION)]
    return norms or [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)]


def _note(into: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
    def note(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> None:
        into.append(output)

    return note


def _feature_distance(found: Tensor, wanted: Tensor) -> Tensor:
    return (found - wanted).square().mean() / (wanted.var() + 1e-8)


@torch.no_grad()
def held_out_distance(model: nn.Module, dense: nn.Module, parts: OutputLoss, batches: Sequence[Batch]) -> float:
    """Return the mean distance of a model's outputs from the dense ones; each module keeps its own mode."""
    modes = {module: module.training for module in model.modules()}
    home, device = next(model.parameters()).device, next(dense.parameters()).device
    total, count = 0.0, 0
    try:
        model.to(device).eval()
        for batch in batches:
            pulse()
            size = batch_size(batch)
            total += float(parts.distance(parts.outputs(model, batch), parts.outputs(dense, batch))) * size
            count += size
    finally:
        model.to(home)
        for module, mode in modes.items():
            module.training = mode
    return total / count if math.isfinite(total) else math.inf

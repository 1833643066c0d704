"""The dense network as a teacher: the distance of a model's outputs, and of its layers' features, from the dense."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import pulse
from brainsurgeon.network.loss import LossLike, OutputLoss, output_loss
from brainsurgeon.network.modes import evaluated
from brainsurgeon.network.trust import AHEAD, Trust
from brainsurgeon.network.weights import NORMALISATION
from brainsurgeon.samples.batches import Batch, batch_size, concatenate, form
from brainsurgeon.samples.views import all_views, own_view

LINEAR = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True)
class Lesson:
    """What a training step minimises: the loss, the distance from the dense outputs, and from its layers' features.

    `share` is that of the distance, the rest is the loss. For classes the distance is T² times the Kullback–Leibler
    divergence at the temperature T, else the squared difference relative to the outputs' variance. `features` weighs
    the mean over the watched layers of ‖a − ā‖²/Var(ā), with the variances found once. With `while_better` the dense
    network teaches only as long as its own loss on the samples of the last steps is well below the student's; then the
    loss alone is left.
    """

    share: float = 0.0
    temperature: float = 1.0
    features: float = 0.0
    while_better: bool = False

    @property
    def has_teacher(self) -> bool:
        """Whether the dense network has a part in it."""
        return bool(self.share or self.features)

    @property
    def may_end(self) -> bool:
        """Whether the dense network is followed only as long as it does better."""
        return self.has_teacher and self.while_better


class Teacher:
    """The dense model, and a lesson; `loss(model, batch)` is what the student's training step minimises.

    A student whose layers are smaller is compared in the units it has: `kept` holds their indices by layer, and None
    for one that is not compared.
    """

    def __init__(
        self,
        dense: nn.Module,
        loss: LossLike,
        lesson: Lesson,
        probe: Batch,
        kept: Mapping[str, Tensor | None] | None = None,
    ):
        self.dense, self.lesson, self.trust, self.ahead = dense, lesson, Trust(), AHEAD
        self._aside: torch.cuda.Stream | None = None
        self._kept, self._probe = dict(kept or {}), probe
        self.parts = output_loss(loss, dense, probe)
        if self.parts is None and lesson.has_teacher:
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
        self.trust = Trust(self.ahead)
        if self.lesson.features:
            unknown = {name for name, units in self._kept.items() if units is None}
            for network, into, kept in ((model, ours, {}), (self.dense, theirs, self._kept)):
                for name, module in watched(network).items():
                    if name not in unknown:
                        hooks.append(module.register_forward_hook(_note(into, kept.get(name))))

        def value(batch: Batch, student: Callable[[], Any]) -> Tensor:
            try:
                answer = self._asked(batch)
                return self._value(own_view(batch), student(), answer, ours, theirs, scales)
            finally:
                ours.clear()
                theirs.clear()

        try:
            scales = self._scales(theirs)
            yield value
        finally:
            for hook in hooks:
                hook.remove()

    def outputs(self, model: nn.Module, batch: Batch) -> Any:
        """Return what a model gives for a batch."""
        assert self.parts is not None  # asked for only where `can_teach`
        return self.parts.outputs(model, batch)

    @torch.no_grad()
    def _asked(self, batch: Batch) -> Callable[[], Any] | None:
        """Have the dense network answer, if it is listened to; return what gives its outputs.

        For several views of the samples it answers with the mean of its outputs. In a step that is recorded it answers
        beside the student: a small network leaves most of a GPU idle.
        """
        parts, lesson = self.parts, self.lesson
        assert parts is not None
        if not lesson.has_teacher or (lesson.may_end and not self.trust.listens):
            return None
        if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            wanted = self._answer(batch)
            return lambda: wanted
        current = torch.cuda.current_stream()
        aside = self._aside = self._aside or torch.cuda.Stream(current.device)
        aside.wait_stream(current)
        with torch.cuda.stream(aside):
            wanted = self._answer(batch)

        def answer() -> Any:
            current.wait_stream(aside)
            return wanted

        return answer

    def _answer(self, batch: Batch) -> Any:
        found = self._of_views(all_views(batch))
        return found[0] if len(found) == 1 else torch.stack(found).mean(0)

    def _of_views(self, views: list[Batch]) -> list[Any]:
        """Return the dense outputs for each view: in one pass, unless sizes differ or features are wanted."""
        apart = len(views) == 1 or self.lesson.features
        if apart or any(form(view) != form(views[0]) for view in views):
            return [self.outputs(self.dense, view) for view in views]
        return list(self.outputs(self.dense, concatenate(views)).chunk(len(views)))

    @torch.no_grad()
    def _scales(self, theirs: list[Tensor]) -> Tensor | None:
        """Return 1/Var(ā) of each watched layer of the dense network, on the samples it was given to look at."""
        if not self.lesson.features:
            return None
        self.outputs(self.dense, self._probe)
        found = [1 / (features.float().var() + 1e-8) for features in theirs]
        theirs.clear()
        if not found and not self.lesson.share:
            raise BrainsurgeonError(
                "features are what linear layers, convolutions and normalisations give, and this model has none of "
                "them: leave features out"
            )
        return torch.stack(found) if found else None

    def _value(
        self,
        batch: Batch,
        found: Any,
        answer: Callable[[], Any] | None,
        ours: list[Tensor],
        theirs: list[Tensor],
        scales: Tensor | None,
    ) -> Tensor:
        parts, lesson = self.parts, self.lesson
        assert parts is not None
        if answer is None:
            loss = parts.loss(found, batch)
            if lesson.may_end:
                self.trust.weigh(loss, None)
            return loss
        wanted = answer()
        lessons = self._lessons(found, wanted, ours, theirs, scales)
        if lesson.share == 1 and not lesson.may_end:
            return lessons
        loss = parts.loss_beside(found, wanted, batch)
        if not lesson.while_better:
            return (1 - lesson.share) * loss + lessons
        followed = self.trust.weigh(loss, parts.loss_beside(wanted, wanted, batch))
        return (1 - lesson.share * followed) * loss + followed * lessons

    def _lessons(
        self, found: Any, wanted: Any, ours: list[Tensor], theirs: list[Tensor], scales: Tensor | None
    ) -> Tensor:
        """Return what is learnt from the dense network: its outputs and its features."""
        parts, lesson = self.parts, self.lesson
        assert parts is not None
        terms = [lesson.share * parts.distance(found, wanted, lesson.temperature)] if lesson.share else []
        if scales is not None and ours:
            theirs = theirs[: len(ours)]  # those of the view that the student sees, which comes first
            distances = torch.stack([mse_loss(a, b) for a, b in zip(ours, theirs, strict=True)])
            terms.append(lesson.features * (distances * scales).mean())
        return torch.stack(terms).sum()


def watched(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers whose outputs are compared: normalisation layers, or linear layers where there are none."""
    norms: dict[str, nn.Module] = {n: m for n, m in model.named_modules() if isinstance(m, NORMALISATION)}
    return norms or {n: m for n, m in model.named_modules() if isinstance(m, LINEAR)}


def _note(into: list[Tensor], kept: Tensor | None) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
    def note(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> None:
        axis = -1 if isinstance(module, nn.Linear | nn.LayerNorm) else 1
        into.append(output if kept is None else output.index_select(axis, kept.to(output.device)))

    return note


@torch.no_grad()
def held_out_distance(model: nn.Module, dense: nn.Module, parts: OutputLoss, batches: Sequence[Batch]) -> float:
    """Return the mean distance of a model's outputs from the dense ones; its own state stays."""
    total, count = 0.0, 0
    with evaluated(model, next(dense.parameters()).device):
        for batch in batches:
            pulse()
            size = batch_size(batch)
            total += float(parts.distance(parts.outputs(model, batch), parts.outputs(dense, batch))) * size
            count += size
    return total / count if math.isfinite(total) else math.inf

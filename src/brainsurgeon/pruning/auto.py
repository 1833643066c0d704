"""The best that data and time allow: candidates from cheap to dear, judged on samples that none of them has seen.

*quick* tries one-shot methods: layer by layer on the moments of the inputs, magnitude and, for small networks, the
Fisher matrix with the joint update. *standard* and *thorough* train as well: gradual pruning where samples are many,
and where they are few the cut that a quick method makes, repaired by distillation from the dense network.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from brainsurgeon.engine.budget import Share
from brainsurgeon.engine.selection import Magnitude, RecentredSearch, WoodFisher
from brainsurgeon.engine.update import Joint, Scaled
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.network.checks import check_loss, check_separate, check_suspects
from brainsurgeon.network.distillation import held_out_distance
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.network.loss import output_loss
from brainsurgeon.network.weights import Layer
from brainsurgeon.pruning.finish import measured_loss
from brainsurgeon.pruning.gradual.method import ENOUGH, Augment, Gradual
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.outcome import Outcome, Task
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.samples.held_out import TrainingSamples

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

EFFORTS = {"quick": 0, "standard": 240_000, "thorough": 960_000}
"""Sample gradients that training may take."""
SMALL = 2_000_000
"""A network of at most so many weights is searched by its Fisher matrix too."""
LARGE = 10_000_000
"""A network of at least so many weights is cut layer by layer before it is trained."""
Candidate = OneShot | Layerwise | Gradual | Staged


@dataclass(frozen=True)
class Auto:
    """Try what may be best, from cheap to dear, and keep what the held-out samples like best.

    Args:
        name: what the method is called in reports.
        effort: "quick" (tens of forward passes), "standard" (minutes; trains the kept weights), "thorough" (longer).
        max_gradients: sample gradients in all; by default the effort's.
        max_seconds: seconds in all.
        max_samples: training samples in all, the held-out fifth among them.
        repair: "weights" trains the prunable weights alone, "all" biases and normalisation too.
        augment: changes a training batch, drawing from the generator it is given.
    """

    name: str = "auto"
    effort: str = field(default="standard", kw_only=True)
    max_gradients: int | None = field(default=None, kw_only=True)
    max_seconds: float | None = field(default=None, kw_only=True)
    max_samples: int | None = field(default=None, kw_only=True)
    repair: str = field(default="all", kw_only=True)
    augment: Augment | None = field(default=None, kw_only=True)

    uses_curvature = True
    uses_data = True

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise BrainsurgeonError(f"effort must be one of {', '.join(EFFORTS)}, got {self.effort!r}")
        if self.max_gradients is not None and (not isinstance(self.max_gradients, int) or self.max_gradients < 1):
            raise BrainsurgeonError(f"max_gradients must be a whole number of at least 1, got {self.max_gradients!r}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise BrainsurgeonError(f"max_seconds must be positive, or None for no limit, got {self.max_seconds}")
        if self.repair not in ("weights", "all"):
            raise BrainsurgeonError(f'repair must be "weights" or "all", got {self.repair!r}')

    @property
    def gradients(self) -> int:
        """Sample gradients that training may take."""
        return EFFORTS[self.effort] if self.max_gradients is None else self.max_gradients

    def shares(self, shares: list[Share], sparsity: float, layers: Sequence[Layer]) -> list[Share]:
        """Return what is to go of which layers: what the budget says."""
        return shares

    def run(self, surgery: Surgery, task: Task) -> Outcome:
        """Run the candidates on the training samples, and keep the one that the held-out samples like best."""
        return AutoRun(self, surgery, task).run()


class AutoRun:
    """One run of an `Auto`."""

    def __init__(self, method: Auto, surgery: Surgery, task: Task):
        if surgery.data is None:
            raise BrainsurgeonError("method 'auto' needs training samples: give data, or take `mp`, which needs none")
        self.method, self.surgery, self.task, self.started = method, surgery, task, time.monotonic()
        self.samples = TrainingSamples(surgery.data, task.seed, surgery.device, method.max_samples)
        self.held_out = self.samples.held_out()
        check_suspects(surgery.batch_loss, self.samples.everything())
        check_loss(surgery.batch_loss, self.held_out[0])
        self.notes = check_separate(surgery.batch_loss, self.held_out[0], group=0)
        self.part = copy.copy(surgery)
        self.part.data, self.part._examined = self.samples.training(), {}
        self.outputs = output_loss(surgery.loss, surgery.batch_loss.model, self.held_out[0])
        self.few = self.samples.held < ENOUGH
        self.found: dict[str, float] = {}
        self.cut: Outcome | None = None

    def run(self) -> Outcome:
        """Try the candidates; write the best one's model into the task's."""
        best: tuple[float, str, Outcome, nn.Module] | None = None
        chosen = list(self.candidates())
        self.task.notify(Event("plan", 0, len(chosen), {"candidates": ", ".join(name for name, _ in chosen)}))
        gradients, notes = 0, list(self.notes)
        for number, (name, candidate) in enumerate(chosen, 1):
            if best is not None and self._time_left() <= 0:
                notes.append(f"time was up before {name} was tried")
                break
            model = copy.deepcopy(self.task.model)
            outcome = self._try(candidate, model)
            loss = self._judge(model)
            self.found[name] = loss
            gradients += int(outcome.record.get("sample_gradients", 0))
            self.task.notify(Event("candidates", number, len(chosen), {"name": name, "held-out": loss}))
            if best is None or loss < best[0]:
                best = (loss, name, outcome, model)
        assert best is not None  # there is always a candidate, and the first is always tried
        return self._outcome(*best, gradients, notes)

    def candidates(self) -> Iterator[tuple[str, Candidate]]:
        """Yield what is tried, the cheap ones first."""
        layered = bool(linear_maps(self.surgery.original, self.surgery.weights.names))
        size, trains = self.surgery.weights.size, bool(self.method.gradients)
        if layered:
            yield "layerwise", Layerwise()
        if size <= SMALL and not trains:
            rows, rivals = min(1000, self.samples.size), (Magnitude(), WoodFisher())
            yield "cbs", OneShot(RecentredSearch(), Scaled(Joint()), rivals, "cbs", num_gradients=rows)
        if not layered and (trains or size > SMALL):
            yield "mp", OneShot(Magnitude(), name="mp")
        if trains and self.outputs is not None:
            yield from self._trained(layered, size)
        elif trains:
            yield "staged", Staged(max_gradients=self.method.gradients)

    def _trained(self, layered: bool, size: int) -> Iterator[tuple[str, Candidate]]:
        common: dict[str, Any] = {"repair": self.method.repair, "augment": self.method.augment}
        gradients = self.method.gradients
        if layered and (size >= LARGE or (self.few and size > SMALL)):
            both = size < LARGE
            share = gradients // 2 if both else gradients
            yield "layerwise, trained", Gradual("auto", first_cut=Layerwise(), max_gradients=share, **common)
            gradients -= share
        if gradients:
            yield "gradual", Gradual("auto", max_gradients=gradients, **common)

    def _time_left(self) -> float:
        if self.method.max_seconds is None:
            return math.inf
        return self.method.max_seconds - (time.monotonic() - self.started)

    def _try(self, candidate: Candidate, model: nn.Module) -> Outcome:
        """Run one candidate on the training samples; the model holds what it found."""
        left = self._time_left()
        if left < math.inf and isinstance(candidate, Gradual | Staged):
            candidate = dataclasses.replace(candidate, max_seconds=max(left, 1e-3))
        outcome = candidate.run(self.part, dataclasses.replace(self.task, model=model, store=None, begun=self.cut))
        if isinstance(candidate, Layerwise):  # what trains on from this cut need not make it again
            values = {name: model.get_parameter(name).detach().clone() for name in self.surgery.weights.names}
            self.cut = dataclasses.replace(outcome, values=values)
        with torch.no_grad():
            for name, found in (outcome.values or {}).items():
                model.get_parameter(name).copy_(found)
        return outcome

    def _judge(self, model: nn.Module) -> float:
        """Return what the held-out samples say: the loss or, where they are few, the distance from the dense."""
        with self.task.clock.measure("held-out"):
            if self.few and self.outputs is not None:
                return held_out_distance(model, self.surgery.batch_loss.model, self.outputs, self.held_out)
            loss = measured_loss(model, self.surgery.loss, self.held_out, self.surgery.device)
        return math.inf if loss is None else loss

    def _outcome(
        self, loss: float, name: str, outcome: Outcome, model: nn.Module, gradients: int, notes: list[str]
    ) -> Outcome:
        self.task.model.load_state_dict(model.state_dict())
        judged = "distance from the dense outputs" if self.few and self.outputs is not None else "loss"
        shown = ", ".join(f"{other} {value:.4g}" for other, value in self.found.items())
        notes.insert(0, f"{name} was kept: held-out {judged} on {self.samples.held} samples: {shown}")
        before = measured_loss(self.surgery.batch_loss.model, self.surgery.loss, self.held_out, self.surgery.device)
        record = {"chosen": name, "candidates": self.found, "sample_gradients": gradients}
        record |= {"training_samples": self.samples.size, "held_out_samples": self.samples.held}
        kept = {key: value for key, value in outcome.record.items() if key in ("learning_rate", "lesson", "mixup")}
        return Outcome(
            outcome.masks,
            None,
            self.held_out,
            before,
            seconds=self.task.clock.seconds,
            record=record | kept,
            notes=(*notes, *outcome.notes),
        )

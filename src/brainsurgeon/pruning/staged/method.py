"""Pruning in stages: a little more each time, with the loss examined again, and the kept weights trained in between."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from brainsurgeon.engine.blocks import make_blocks
from brainsurgeon.engine.budget import Budget, Share
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.problem import Selection, Update
from brainsurgeon.engine.selection import WoodFisher
from brainsurgeon.engine.update import Joint, Keep
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.checks import check_loss, check_separate
from brainsurgeon.network.gradients import check_slope
from brainsurgeon.network.loss import BatchLoss, output_loss
from brainsurgeon.network.match import Match
from brainsurgeon.network.sample_loss import SampleLoss
from brainsurgeon.network.weights import Layer
from brainsurgeon.pruning.examine import CURVATURES
from brainsurgeon.pruning.judging import ENOUGH, affordable
from brainsurgeon.pruning.outcome import Outcome, Start, Task
from brainsurgeon.pruning.patterns import as_pattern, budget_in, pattern_shares
from brainsurgeon.pruning.staged.descent import Descent
from brainsurgeon.pruning.staged.pacing import Pacing
from brainsurgeon.pruning.staged.run import run_stages
from brainsurgeon.pruning.staged.schedule import Stages
from brainsurgeon.pruning.staged.stage import Stage
from brainsurgeon.pruning.staged.state import State
from brainsurgeon.samples.batches import Batch
from brainsurgeon.samples.held_out import TrainingSamples

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery


@dataclass(frozen=True)
class Staged:
    """A selection and an update, again and again, with training in between; all choices on held-out samples.

    Args:
        selection: what chooses the next weights to go; `rivals` choose too, and the held-out samples judge.
        update: how the kept weights make up for them.
        rivals: other selections.
        name: what the method is called in reports.
        schedule: a `Stages`, or a number n of stages (and as many refits).
        curvature: "fisher", "gram" (of each layer's inputs) or "auto", decided on held-out samples.
        max_gradients: sample gradients in all, but for those that a search takes of its own.
        max_seconds: fewer and larger steps are taken where time is short.
        max_samples: training samples in all, those held out among them; by default all there are, or 20,000 of a
            data set or loader.
        blocks: "model", "layer", a largest block size, or "auto": at most 8 weights a gradient row.
        dtype: of the stored gradients; bfloat16 halves their memory.
    """

    selection: Selection = field(default_factory=WoodFisher)
    update: Update = field(default_factory=Joint)
    rivals: tuple[Selection, ...] = ()
    name: str = ""
    schedule: Stages = field(default_factory=Stages, kw_only=True)
    curvature: str = field(default="auto", kw_only=True)
    max_gradients: int = field(default=120_000, kw_only=True)
    max_seconds: float | None = field(default=None, kw_only=True)
    max_samples: int | None = field(default=None, kw_only=True)
    blocks: str | int = field(default="auto", kw_only=True)
    dtype: torch.dtype = field(default=torch.float32, kw_only=True)
    pattern: Pattern = field(default_factory=Pattern, kw_only=True)

    uses_curvature = True
    uses_data = True
    shares_work = False

    def __post_init__(self) -> None:
        schedule = Stages.of(self.schedule)
        if isinstance(self.update, Keep):  # without an update nothing is trained either
            schedule = replace(schedule, trainings=0)
        object.__setattr__(self, "schedule", schedule)
        object.__setattr__(self, "pattern", as_pattern(self.pattern))
        if self.curvature not in (*CURVATURES, "auto"):
            raise BrainsurgeonError(f'curvature must be "auto", "fisher" or "gram", got {self.curvature!r}')
        if isinstance(self.max_gradients, bool) or not isinstance(self.max_gradients, int) or self.max_gradients < 1:
            raise BrainsurgeonError(f"max_gradients must be at least 1, got {self.max_gradients!r}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise BrainsurgeonError(f"max_seconds must be positive, or None for no limit, got {self.max_seconds}")
        if not isinstance(self.dtype, torch.dtype) or not self.dtype.is_floating_point:
            raise BrainsurgeonError(f"gradients are stored in a floating-point type such as bfloat16, got {self.dtype}")

    def shares(self, shares: list[Share], sparsity: float, layers: Sequence[Layer]) -> list[Share]:
        """Return what is to go of which layers: what the budget says, in the counts that the pattern allows."""
        return pattern_shares(self.pattern, shares, sparsity, layers)

    def run(self, surgery: Surgery, task: Task) -> Outcome:
        """Prepare the losses and the samples, go through the stages, and tell what came out."""
        if surgery.data is None:
            raise BrainsurgeonError(f"method {self.name!r} needs training samples: give data (only `mp` needs none)")
        if isinstance(surgery.loss, Match):
            raise BrainsurgeonError(
                f"method {self.name!r} takes gradients at the dense weights, where the distance from the dense outputs "
                'has none: take "gradual" or "auto", or a method in one shot ("layerwise", "cbs")'
            )
        make_blocks(self.blocks, surgery.weights.layers, 1)  # refuse a bad rule before any work
        values = surgery.values  # refused here if not finite
        samples = task.samples or TrainingSamples(surgery.data, task.seed, surgery.device, self.max_samples)
        held_out = affordable(surgery.batch_loss, samples.held_out(), task.clock)
        check_loss(surgery.batch_loss, held_out[0])
        notes = [*samples.notes, *check_separate(surgery.batch_loss, held_out[0], group=None)]
        check_slope(surgery.batch_loss, surgery.weights, held_out)
        losses = self._losses(surgery, held_out[0])
        kinds = len(CURVATURES) if self.curvature == "auto" else 1
        pacing = Pacing(self.schedule, self.max_gradients, samples.size, kinds, len(losses))
        state = task.store.load() if task.store else None
        budget = budget_in(self.pattern, surgery, task.shares)
        state = state or self._first(surgery, values, task.start, budget)
        held = SampleLoss(surgery.batch_loss, surgery.weights, surgery.values, held_out, judging=1.0)
        before = held.at(surgery.values).loss()
        stage, train = self._parts(surgery, losses, samples, held_out, pacing, task, notes)
        state = run_stages(state, budget, stage, train, pacing, task.clock, task.store, notes)
        return Outcome(
            surgery.weights.unflatten(state.pruned),
            surgery.weights.unflatten(state.values),
            held.batches,
            before,
            seconds=task.clock.seconds,
            record={
                "sample_gradients": state.gradients,
                "training_gradients": state.trained,
                "training_samples": samples.size,
                "held_out_samples": samples.held,
            },
            notes=tuple(notes),
        )

    def _first(self, surgery: Surgery, values: Tensor, start: Start | None, final: Budget) -> State:
        """Return where the stages begin: at the dense network, or at a pruned one, as far as that has come."""
        state = State.begin(values, "gram" if self.curvature == "auto" else self.curvature)
        if start is None:
            return state
        pruned = torch.cat([start.masks[name].reshape(-1) for name in surgery.weights.names]).to(values.device)
        reached = surgery.weights.flatten(start.model).to(values).masked_fill(pruned, 0.0)
        progress = self.schedule.progress_at(int(pruned.sum()), final)
        return replace(state, values=reached, pruned=pruned, progress=progress)

    def _losses(self, surgery: Surgery, probe: Any) -> dict[str, BatchLoss]:
        """Return the loss and, where the outputs can be compared, the distance from the dense ones, on one model."""
        live = BatchLoss(copy.deepcopy(surgery.batch_loss.model), surgery.loss)
        dense = surgery.batch_loss.model
        parts = output_loss(surgery.loss, dense, probe)
        if parts is None or parts.own is not None:  # the loss is that distance already
            return {"loss": live}
        return {"loss": live, "distillation": BatchLoss(live.model, parts.distance_from(dense))}

    def _parts(
        self,
        surgery: Surgery,
        losses: dict[str, BatchLoss],
        samples: TrainingSamples,
        held_out: list[Batch],
        pacing: Pacing,
        task: Task,
        notes: list[str],
    ) -> tuple[Stage, Callable[[State], State]]:
        """Return a stage and a training; both are judged on the same held-out samples."""
        few = samples.held < ENOUGH and "distillation" in losses
        judged = losses["distillation" if few else "loss"]
        held = SampleLoss(judged, surgery.weights, surgery.values, held_out, judging=1.0)
        stage = Stage(
            losses["loss"],
            surgery.batch_loss,
            losses,
            surgery.weights,
            samples,
            held,
            (self.selection, *self.rivals),
            self.update,
            pacing,
            self.curvature,
            self.blocks,
            self.dtype,
            task.seed,
            task.notify,
            task.clock,
            notes,
        )

        descent = Descent(
            judged,
            held,
            surgery.weights,
            samples,
            self.schedule,
            self.max_gradients,
            pacing.owed,
            task.notify,
            task.clock,
            mixing=few,
        )
        return stage, descent

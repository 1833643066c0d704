"""Training steps with cuts in between: the mask is found again and again until its last cut, then only trained on."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import agreed, world_size
from brainsurgeon.engine.budget import Budget
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event
from brainsurgeon.events.clock import TimeUp, pulse
from brainsurgeon.network.distillation import Teacher
from brainsurgeon.network.precision import fast_products, has_recurrent, without_cudnn
from brainsurgeon.network.statistics import average_statistics, following, kept_statistics
from brainsurgeon.pruning.gradual.ranks import Shares, send_round
from brainsurgeon.pruning.gradual.recorded import recorded
from brainsurgeon.pruning.gradual.step import (
    OPTIMIZERS,
    Step,
    load_optimizer,
    make_optimizer,
    optimizer_state,
    set_rate,
)
from brainsurgeon.pruning.gradual.student import Student
from brainsurgeon.samples.batches import Batch, batch_size
from brainsurgeon.samples.views import own_view

AVERAGED, PAYING = 64, 10
"""Batches that the statistics of batch normalisation are averaged over in the end, and how many steps there must be for
each of them."""
SLACK = 0.01
"""How far time may be ahead of the steps, as a share of all, and of a step at most."""
TOLD = 1.0
"""Seconds between two events of training."""


class DivergedError(BrainsurgeonError):
    """Training has led to numbers that are not finite; all ranks notice it at the same step."""


@dataclass(frozen=True)
class Plan:
    """How the sparsity rises and the learning rate falls: s(t) = r(1 − (1 − t/end)^power), in `cuts` cuts in all.

    The rate rises over the first `warm` share of the steps, stays until the last cut, and falls to zero along a cosine.
    """

    end: float = 0.7
    cuts: int = 240
    power: float = 4.0
    warm: float = 0.02
    score_power: float = 0.5
    returning: bool = True
    weight_decay: float | None = None
    """None: 0.1 (0.0005 for SGD) where samples are many, else none: the dense network, which teaches then, is not to be
    shrunk."""
    optimizer: str = "adamw"
    """Or "sgd", with Nesterov's momentum."""

    def __post_init__(self) -> None:
        never = self.end == self.cuts == 0  # what is cut already is only trained on
        if not never and not (0 < self.end <= 1 and self.cuts >= 1 and self.power > 0 and self.score_power >= 0):
            raise BrainsurgeonError(
                "expected end above 0 and up to 1, one cut or more, a positive power and a score_power of 0 or more; "
                f"got end={self.end!r}, cuts={self.cuts!r}, power={self.power!r}, score_power={self.score_power!r}"
            )
        if self.optimizer not in OPTIMIZERS:
            raise BrainsurgeonError(f"the optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}")

    def that_cuts(self) -> Plan:
        """Return the plan, or refuse one that is for what is cut already."""
        if not self.cuts:
            raise BrainsurgeonError("a plan of gradual pruning must have one cut or more, got none")
        return self

    def for_few(self, few: bool) -> Plan:
        """Return the plan with the weight decay that it leaves open."""
        if self.weight_decay is not None:
            return self
        return replace(self, weight_decay=0.0 if few else OPTIMIZERS[self.optimizer].decay)

    def rate(self, share: float) -> float:
        """Return the share of the learning rate after a share of the steps."""
        rising = min(1.0, (share + 1e-3) / self.warm) if self.warm else 1.0
        if share < self.end:
            return rising
        return rising * 0.5 * (1 + math.cos(math.pi * (share - self.end) / (1 - self.end)))

    def budget(self, share: float, final: Budget, gone: Sequence[int] = ()) -> Budget:
        """Return what is to be gone after a share of the steps, of groups in which some may be gone from the start."""
        if share >= self.end:
            return final
        part = 1 - (1 - share / self.end) ** self.power
        first = gone or [0] * len(final.counts)
        counts = [min(b, a + math.ceil((b - a) * part)) for a, b in zip(first, final.counts, strict=True)]
        return final.with_counts(counts)

    def due(self, share: float) -> int:
        """Return the number of cuts that are due after a share of the steps."""
        return int(share / self.end * self.cuts) if share < self.end else self.cuts


class Outputs(nn.Module):
    """A model's outputs for a batch, as a module whose parameters can be replaced."""

    def __init__(self, model: nn.Module, teacher: Teacher):
        super().__init__()
        self.model = model
        self._outputs = teacher.outputs
        self._recurrent = has_recurrent(model)

    def forward(self, batch: Batch) -> Tensor:
        """Return the outputs."""
        recurrent = without_cudnn() if self._recurrent else nullcontext()
        single = kept_statistics(self.model) if batch_size(batch) == 1 else nullcontext()
        with recurrent, single:
            return self._outputs(self.model, own_view(batch))


@dataclass
class Training:
    """One run of training with cuts; `batches` gives the batch of each step from a number on."""

    student: Student
    teacher: Teacher
    batches: Callable[[int], Iterator[Batch]]
    plan: Plan
    final: Budget
    steps: int
    rate: float
    notify: Callback
    deadline: float = math.inf
    checkpoint: Callable[[dict[str, Tensor], int], None] | None = None
    records: bool = True
    """Whether a GPU may record a step's kernels and play them again; several ranks have to talk within a step."""
    gone: tuple[int, ...] = ()
    """How many weights of each group of the budget are pruned already."""
    evenly: Callable[[], Iterator[Batch]] | None = None
    """Gives batches in which no sample is drawn more often than another, where `batches` are others."""
    samples: int = 0
    """Samples whose gradients this run has taken."""
    _begun: float = 0.0
    _gone_by: float = 0.0
    """When this run began, and how far training had come then."""

    def run(self, start: int = 0, tensors: dict[str, Tensor] | None = None) -> int:
        """Train from a step on; return the number of steps that were taken in all."""
        optimizer = self._optimizer()
        self._begun, self._gone_by = time.monotonic(), start / self.steps
        if tensors is not None:
            self.student.restore(tensors)
            load_optimizer(optimizer, tensors)
            self._gone_by = max(self._gone_by, float(tensors["share"]))
        cut_at, told = self.plan.due(self._gone_by) + 1, 0.0
        step = start
        with self.teacher.watching(self.student.model) as value, fast_products():
            if tensors is not None:
                self.teacher.trust.restore(tensors["trust"], next(iter(self.student.values.values())))
            take = self._step(optimizer, value)
            share = self._share(step)
            for batch in self.batches(start):
                if step >= self.steps or share >= 1:
                    break
                set_rate(optimizer, self.rate * self.plan.rate(share))
                loss = take(batch)
                self.samples += batch_size(batch)
                step += 1
                share = self._share(step)
                if step % 50 == 1 and not math.isfinite(float(loss)):
                    raise self._diverged(step)
                cut_at = self._cut(share, cut_at, step)
                now = time.monotonic()
                if now - told > TOLD or step == self.steps:
                    told = now
                    self.notify(Event("training", step, self.steps, {"pruned": self._count()}))
                    if self.checkpoint is not None:
                        self.checkpoint(self._state(optimizer, share), step)
        if cut_at <= self.plan.cuts:  # the data or the time ended early: the last cut is made all the same
            self._cut(1.0, cut_at, step)
        self.student.settle()
        self._check_finite(step)
        self._average_statistics(step, step - start)
        send_round(self.student)
        return step

    def _average_statistics(self, steps: int, taken: int) -> None:
        """Let the running statistics be those of many batches, if a few passes are little beside the steps."""
        if steps < PAYING * AVERAGED or not following(self.student.model):
            return
        now = time.monotonic()
        late = now + AVERAGED * (now - self._begun) / max(taken, 1) > self.deadline  # a pass takes less than a step
        if self.deadline < math.inf and agreed(late):
            return
        outputs = Outputs(self.student.model, self.teacher)

        def passes() -> Iterator[Callable[[], Tensor]]:
            for batch in itertools.islice(self.batches(0) if self.evenly is None else self.evenly(), AVERAGED):
                try:
                    pulse()
                except TimeUp:  # the mean of fewer batches will do
                    return
                yield partial(self.student.forward, batch, outputs)

        average_statistics(self.student.model, passes())

    def _step(
        self, optimizer: torch.optim.Optimizer, value: Callable[[Batch, Callable[[], Any]], Tensor]
    ) -> Callable[[Batch], Tensor]:
        """Return what takes a step on a batch, of which every rank does its part."""
        shares = Shares.of(self.student.model)
        self.teacher.trust.mean = shares.mean
        outputs = Outputs(self.student.model, self.teacher)
        step = Step(self.student, self.teacher.trust, optimizer, value, outputs, shares)
        return recorded(step, self.records and world_size() == 1)

    def _state(self, optimizer: torch.optim.Optimizer, share: float) -> dict[str, Tensor]:
        reached = {"share": torch.tensor(share, dtype=torch.float64), "trust": self.teacher.trust.state()}
        return self.student.stored() | optimizer_state(optimizer) | reached

    def _share(self, step: int) -> float:
        """Return how far training has come: by its steps, or by its time where that is shorter."""
        by_steps = step / self.steps
        if self.deadline == math.inf:
            return by_steps
        by_time = agreed((time.monotonic() - self._begun) / max(self.deadline - self._begun, 1e-9))
        ahead = min(SLACK, 1 / self.steps)  # a limit that does not bind must not be felt at the first step
        return max(by_steps, self._gone_by + (1 - self._gone_by) * by_time - ahead)

    def _check_finite(self, step: int) -> None:
        largest = torch._foreach_norm([value.detach() for value in self.student.values.values()], math.inf)
        if not bool(torch.stack(largest).isfinite().all()):  # a device is waited for once
            raise self._diverged(step)

    def _diverged(self, step: int) -> DivergedError:
        return DivergedError(
            f"training diverged by step {step} with the learning rate {self.rate:g}: give a lower learning_rate"
        )

    def _cut(self, share: float, cut_at: int, step: int) -> int:
        """Make the next cut if its time has come; return the number of the one after it."""
        due = self.plan.due(share)
        if not self.plan.cuts or due < cut_at:
            return cut_at
        self._check_finite(step)
        last = due >= self.plan.cuts
        budget = self.plan.budget(1.0 if last else share, self.final, self.gone)
        self.student.cut(budget, self.plan.score_power, self.plan.returning)
        if last:
            self.student.settle()
        return due + 1

    def _count(self) -> int:
        return int(torch.stack([(mask == 0).sum() for mask in self.student.masks.values()]).sum())

    def _optimizer(self) -> torch.optim.Optimizer:
        return make_optimizer(self.student, self.plan.optimizer, self.rate, self.plan.weight_decay or 0.0)

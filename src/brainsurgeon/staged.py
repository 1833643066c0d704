"""Pruning in stages: a little more each time, with the loss examined again where the weights have come to.

A stage takes the curvature and the mean gradient a at the weights reached, chooses what goes next, and moves the kept
weights by d_U + s·d_F + μ·d_last: the joint update for what is removed (CBS-U), the Newton step d_F = −H_SS⁻¹a_S, and a
part of the last step. A refit is a stage that prunes nothing. Damping, s, μ, the kind of curvature and what a is
the gradient of (the loss, or the distance from the dense outputs) are chosen on samples held out from training; staying
where one is stands among the candidates of every refit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .batches import Batch, batch_size
from .clock import Clock
from .events import Callback, Event
from .examine import CURVATURES, Examination, examine
from .loss import BatchLoss
from .mask import Budget
from .methods import Method
from .problem import Problem
from .sample_loss import LossJudge, SampleLoss, race
from .samples import TrainingSamples
from .schedule import Stages
from .stand import Effort, Keeper, Stand
from .update import Joint, Keep, Scaled
from .weights import PrunableWeights

DAMPINGS = (1.0, 0.1, 10.0)
LENGTHS = (1.0, 0.25, 4.0)
MOMENTA = (0.0, 0.7)
LOOK = 5
"""Where both kinds of curvature may be used they compete in every so many stages; the winner works in between."""
DAMPING_LOOK = 3
"""Other dampings are tried in every so many stages."""
FEWEST_ROWS, MOST_ROWS, MOST_ENTRIES = 400, 1000, 120_000_000
"""Rows of gradients in a stage: within these bounds, and no more than so many entries."""
ENOUGH = 1000
"""With fewer held-out samples than this their loss is too noisy a judge: the distance from the dense outputs tells more
of each sample, and is taken in its place."""
HOPELESS = 1000
"""A Fisher with more weights than this for each of its rows does not compete."""


@dataclass
class StagedRun:
    """One run; `batch_loss` holds a copy of the model whose weights are set as the stages go on."""

    batch_loss: BatchLoss
    matching: BatchLoss | None
    weights: PrunableWeights
    samples: TrainingSamples
    method: Method
    schedule: Stages
    effort: Effort
    curvature: str
    blocks: str | int
    dtype: torch.dtype
    seed: int
    notify: Callback
    clock: Clock
    notes: list[str] = field(default_factory=list)
    gradients_taken: int = 0

    def run(self, final: Budget, keeper: Keeper | None = None) -> Stand:
        """Go through all stages and refits."""
        self._share()  # refuse too few gradients before any work
        values = self.weights.flatten(self.batch_loss.model)
        held_out = self.samples.held_out()
        judge = self.matching if self.matching is not None and self.samples.held < ENOUGH else self.batch_loss
        self._held = SampleLoss(judge, self.weights, values, held_out, judging=1.0)
        stand = keeper.load() if keeper else None
        if stand is None:
            kind = "gram" if self.curvature == "auto" else self.curvature
            stand = Stand(0, 0.0, values, torch.zeros_like(values, dtype=torch.bool), torch.zeros_like(values), kind)
        started, first = time.monotonic(), stand.number
        for number in range(stand.number + 1, self.schedule.total + 1):
            progress = self._progress(number, stand, time.monotonic() - started, number - 1 - first)
            if progress is None:
                self.notes.append(f"time was up: {stand.number} of {self.schedule.total} stages and refits were done")
                break
            stand = self._stage(replace(stand, number=number, progress=progress), held_out, final)
            if keeper:
                keeper.save(stand)
        return stand

    def _progress(self, number: int, stand: Stand, elapsed: float, done: int) -> float | None:
        """Return how far pruning is to have come after this stage, in larger steps where time is short."""
        left = self.schedule.stages - number + 1
        if self.effort.max_seconds is not None and done:
            affordable = (self.effort.max_seconds - elapsed) / max(elapsed / done, 1e-9)
            if stand.progress >= 1:
                return 1.0 if affordable >= 1 else None
            left = max(1, int(min(left, affordable)))
        return 1.0 if left <= 1 else stand.progress + (1 - stand.progress) / left

    def _stage(self, stand: Stand, held_out: list[Batch], final: Budget) -> Stand:
        budget = self.schedule.budget_at(stand.progress, final)
        self.weights.assign(self.batch_loss.model, stand.values)
        batches = list(self.samples.draw(self._share(), stand.number))
        with self.clock.measure("gradients"):
            others = self._other_slopes(batches, stand.values)
        both = self.curvature == "auto" and (stand.number - 1) % LOOK == 0
        both = both and self.weights.size <= HOPELESS * self._rows(batches)
        ends = []
        stays = budget.total == int(stand.pruned.sum())
        if stays:
            ends.append(replace(stand.shortened(self._losses, LENGTHS[1]), drift=torch.zeros_like(stand.drift)))
        for kind in CURVATURES if both else (stand.kind,):
            with self.clock.measure("gradients"):
                look = self._look(kind, batches)
            ends += self._ends(look, {"loss": look.gradient} | others, replace(stand, kind=kind), held_out, budget)
        best = self._best(ends)
        if stays and ends[0].loss < best.loss:  # the race may have dropped it on a part of the samples
            best = ends[0]
        values: dict[str, Any] = {"pruned": int(best.pruned.sum()), "loss": best.loss, "curvature": best.kind}
        values |= {"damping": best.damping[best.kind], "slope": best.slope, "length": best.reach(best.slope or "loss")}
        self.notify(Event("stages", best.number, self.schedule.total, {**values, "momentum": best.momentum}))
        return best

    def _share(self) -> int:
        """Return how many samples a stage examines the loss on; each costs a gradient for every look and slope."""
        total = self.schedule.total
        second_looks = -(-total // LOOK) if self.curvature == "auto" else 0
        return min(self.samples.size, self.effort.share(total * len(self._losses) + second_looks))

    @property
    def _losses(self) -> dict[str, BatchLoss]:
        return {"loss": self.batch_loss} | ({} if self.matching is None else {"match": self.matching})

    def _look(self, kind: str, batches: list[Batch]) -> Examination:
        rows = self._rows(batches)
        group = sum(map(batch_size, batches)) // rows
        look = examine(
            kind, self.batch_loss, self.weights, batches, rows, group, self.blocks, self.dtype, self.notify
        )
        self.gradients_taken += rows * group
        self.notes += [note for note in look.notes if note not in self.notes]
        return look

    def _rows(self, batches: list[Batch]) -> int:
        most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_ENTRIES // self.weights.size))
        count = sum(map(batch_size, batches))
        return count // -(-count // most)

    def _other_slopes(self, batches: list[Batch], values: Tensor) -> dict[str, Tensor]:
        others = {name: loss for name, loss in self._losses.items() if name != "loss"}
        self.gradients_taken += len(others) * sum(map(batch_size, batches))
        samples = {name: SampleLoss(loss, self.weights, values, batches) for name, loss in others.items()}
        return {name: sample.gradient(values, range(sample.num_batches)) for name, sample in samples.items()}

    def _ends(
        self, look: Examination, slopes: dict[str, Tensor], stand: Stand, held_out: list[Batch], budget: Budget
    ) -> Iterator[Stand]:
        """Yield where the stage may end: one mask for each damping, and steps of several lengths along each slope."""
        for damped in map(stand.damped, DAMPINGS if (stand.number - 1) % DAMPING_LOOK == 0 else DAMPINGS[:1]):
            quadratic = look.model(stand.values, damped.damping[damped.kind])
            judge = LossJudge(SampleLoss(self.batch_loss, self.weights, stand.values, held_out), self.clock)
            generator = torch.Generator().manual_seed(self.seed + stand.number)
            problem = Problem(stand.values, budget, generator, quadratic, judge, self.notify, self.clock)
            pruned = stand.pruned
            if budget.total > int(stand.pruned.sum()):
                with self.clock.measure("selection"):
                    pruned = self.method.selection(problem)
                budget.check(pruned)
            with self.clock.measure("update"):
                repair, newtons = self._moves(problem, slopes, pruned)
                yield from self._steps(replace(damped, pruned=pruned), repair, newtons)

    def _moves(
        self, problem: Problem, slopes: dict[str, Tensor], pruned: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the update for what is removed, and each slope's Newton step (none where the method has no update)."""
        update = self.method.update.update if isinstance(self.method.update, Scaled) else self.method.update
        if isinstance(update, Keep):
            return update(problem, pruned).double(), {}
        repair, *newtons = problem.quadratic.moves(pruned, list(slopes.values()))
        if not isinstance(update, Joint):
            repair = update(problem, pruned).double()
        return repair, dict(zip(slopes, newtons, strict=True))

    def _steps(self, stand: Stand, repair: Tensor, newtons: dict[str, Tensor]) -> Iterator[Stand]:
        start, last = stand.values.double(), stand.drift.double()

        def moved(end: Stand, step: Tensor) -> Stand:
            values = (start + step).to(stand.values.dtype).masked_fill(stand.pruned, 0.0)
            return replace(end, values=values, drift=(values - stand.values).masked_fill(stand.pruned, 0.0))

        yield moved(stand.shortened(newtons, LENGTHS[1]), repair)
        momenta = MOMENTA if bool(stand.drift.any()) else MOMENTA[:1]
        for name, newton in newtons.items():
            for end in (stand.stretched(name, factor) for factor in LENGTHS):
                for momentum in momenta:
                    step = repair + end.reach(name) * newton + momentum * last
                    yield moved(replace(end, momentum=momentum), step)

    def _best(self, candidates: list[Stand]) -> Stand:
        """Return the candidate with the smallest loss on the samples held out; the first of equals."""
        with self.clock.measure("loss"):
            entries = [self._held.at(candidate.values) for candidate in candidates]
            best = race(self._held, entries)[0]
            return replace(candidates[best], loss=entries[best].loss())

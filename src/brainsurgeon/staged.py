"""Pruning in stages: a little more each time, with the loss examined again where the weights have come to.

A stage takes the curvature and the mean gradient a at the weights reached, chooses what goes next, and moves the kept
weights by d_U + s·d_F + μ·d_last: the joint update for what is removed (CBS-U), the Newton step d_F = −H_SS⁻¹a_S, and a
part of the last step. A refit is a stage that prunes nothing. Damping, s, μ, the kind of curvature and what a is
the gradient of (the loss, or the distance from the dense outputs) are chosen on samples held out from training; staying
where one is stands among the candidates of every refit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .batches import Batch, batch_size, first
from .clock import Clock
from .events import Callback, Event
from .examine import CURVATURES, Examination, examine
from .loss import BatchLoss
from .mask import Budget
from .methods import Method
from .pacing import Pacing
from .problem import Problem
from .reconstruct import reconstruct
from .revise import revise
from .sample_loss import LossJudge, SampleLoss, race
from .samples import TrainingSamples
from .schedule import Stages
from .stand import Effort, Keeper, Stand
from .steps import LENGTHS, moves, moves_weights, steps
from .walk import Walker
from .weights import PrunableWeights

FEWEST_ROWS, MOST_ROWS, MOST_ENTRIES = 400, 1000, 120_000_000
"""Rows of gradients in a stage: within these bounds, and no more than so many entries."""
ENOUGH = 1000
"""With fewer held-out samples than this their loss is too noisy a judge: the distance from the dense outputs tells more
of each sample, and is taken in its place."""
JUDGED = 2000
"""Samples of a stage that a search compares masks on; those held out judge where the stage ends, and nothing else."""
PATIENCE = 3
"""After so many refits in a row that led nowhere the others are left out."""
HOPELESS = 1000
"""A Fisher with more weights than this for each of its rows does not compete."""


@dataclass
class StagedRun:
    """One run; `batch_loss` holds a copy of the model whose weights are set as the stages go on."""

    batch_loss: BatchLoss
    dense: BatchLoss
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
        values = self.weights.flatten(self.batch_loss.model)
        held_out = self.samples.held_out()
        few = self.samples.held < ENOUGH
        self._judge = self.matching if few and self.matching is not None else self.batch_loss
        self._held = SampleLoss(self._judge, self.weights, values, held_out, judging=1.0)
        kinds = len(CURVATURES) if self.curvature == "auto" else 1
        self._pacing = Pacing(self.schedule, self.effort, self.samples.size, kinds, len(self._losses))
        stand = keeper.load() if keeper else None
        if stand is None:
            kind = "gram" if self.curvature == "auto" else self.curvature
            stand = Stand(0, 0.0, values, torch.zeros_like(values, dtype=torch.bool), torch.zeros_like(values), kind)
        self.gradients_taken = stand.gradients
        if self.schedule.looks_from(stand.number + 1):
            self._pacing.share(replace(stand, number=stand.number + 1))  # refuse too few gradients before any work
        resumed, paces = stand.number, list[float]()
        started = before = time.monotonic()
        deadline = math.inf if self.effort.max_seconds is None else started + self.effort.max_seconds
        walker = Walker(
            self._judge, self._held, self.weights, self.samples, self.schedule, self.effort.max_gradients, deadline,
            self._pacing.owed, self.notify, self.clock, blending=self._judge is self.matching,
        )  # fmt: skip
        for number in range(stand.number + 1, self.schedule.total + 1):
            if stand.idle >= PATIENCE and not self.schedule.is_walk(number):
                continue
            now = time.monotonic()
            if number - 1 > resumed and not self.schedule.is_walk(number - 1):
                paces.append(now - before)
            before = now
            progress = self._pacing.progress(number, stand, now - started, paces)
            if progress is None:
                self.notes.append(f"time was up: {stand.number} of {self.schedule.total} stages and refits were done")
                break
            stand = replace(stand, number=number, progress=progress)
            if self.schedule.is_walk(number):
                stand = walker(stand)
            else:
                stand = replace(self._stage(stand, final), gradients=self.gradients_taken)
            self.gradients_taken = stand.gradients
            if keeper:
                keeper.save(stand)
        return stand

    def _stage(self, stand: Stand, final: Budget) -> Stand:
        budget = self.schedule.budget_at(stand.progress, final)
        stays = budget.total == int(stand.pruned.sum())
        self.weights.assign(self.batch_loss.model, stand.values)
        batches = list(self.samples.draw(self._pacing.share(stand), stand.number))
        judge = self._search_judge(batches, stand)
        both = self._pacing.is_look(stand.number) and self.curvature == "auto"
        both = both and self.weights.size <= HOPELESS * self._rows(batches)
        with self.clock.measure("gradients"):
            others = self._other_slopes(batches, stand)
        ends = []
        if stays:
            ends.append(replace(stand.shortened(self._losses, LENGTHS[1]), drift=torch.zeros_like(stand.drift)))
        for kind in CURVATURES if both else (stand.kind,):
            with self.clock.measure("gradients"):
                look = self._look(kind, batches)
            ends += self._ends(look, {"loss": look.gradient} | others, replace(stand, kind=kind), budget, judge)
        best = self._best(ends)
        if stays and ends[0].loss < best.loss:  # the race may have dropped it on a part of the samples
            best = ends[0]
        best = self._rebuilt(best, batches)
        best = replace(best, idle=stand.idle + 1 if torch.equal(best.values, stand.values) else 0)
        values: dict[str, Any] = {"pruned": int(best.pruned.sum()), "loss": best.loss, "curvature": best.kind}
        values |= {"damping": best.damping[best.kind], "slope": best.slope, "length": best.reach(best.slope or "loss")}
        values |= {"momentum": best.momentum, "rebuilt": best.rebuilt, "gradients": self.gradients_taken}
        values |= {"returned": int((stand.pruned & ~best.pruned).sum())}
        self.notify(Event("stages", best.number, self.schedule.total, values))
        return best

    def _search_judge(self, batches: list[Batch], stand: Stand) -> LossJudge | None:
        """Return what a search compares masks by, where the method has a search."""
        if not getattr(self.method.selection, "uses_loss", True):
            return None
        sample = list(first(batches, JUDGED))
        return LossJudge(SampleLoss(self.batch_loss, self.weights, stand.values, sample), self.clock)

    @property
    def _losses(self) -> dict[str, BatchLoss]:
        return {"loss": self.batch_loss} | ({} if self.matching is None else {"match": self.matching})

    def _look(self, kind: str, batches: list[Batch]) -> Examination:
        rows = self._rows(batches)
        group = sum(map(batch_size, batches)) // rows
        look = examine(kind, self.batch_loss, self.weights, batches, rows, group, self.blocks, self.dtype, self.notify)
        self.gradients_taken += rows * group
        self.notes += [note for note in look.notes if note not in self.notes]
        return look

    def _rows(self, batches: list[Batch]) -> int:
        most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_ENTRIES // self.weights.size))
        count = sum(map(batch_size, batches))
        return count // -(-count // most)

    def _other_slopes(self, batches: list[Batch], stand: Stand) -> dict[str, Tensor]:
        """Return the slopes besides the loss's own: in looks all, in between none where the loss's own was better."""
        if stand.favoured == "loss" and not self._pacing.is_look(stand.number):
            return {}
        others = {name: loss for name, loss in self._losses.items() if name != "loss"}
        self.gradients_taken += len(others) * sum(map(batch_size, batches))
        samples = {name: SampleLoss(loss, self.weights, stand.values, batches) for name, loss in others.items()}
        return {name: sample.gradient(stand.values, range(sample.num_batches)) for name, sample in samples.items()}

    def _ends(
        self, look: Examination, slopes: dict[str, Tensor], stand: Stand, budget: Budget, judge: LossJudge | None
    ) -> Iterator[Stand]:
        """Yield where the stage may end: one mask for each damping, and steps of several lengths along each slope.

        In looks there is a second mask, in which pruned weights have come back for others.
        """
        for damped in map(stand.damped, self._pacing.dampings(stand.number)):
            quadratic = look.model(stand.values, damped.damping[damped.kind])
            generator = torch.Generator().manual_seed(self.seed + stand.number)
            problem = Problem(stand.values, budget, generator, quadratic, judge, self.notify, self.clock)
            pruned = stand.pruned
            if budget.total > int(stand.pruned.sum()):
                with self.clock.measure("selection"):
                    pruned = self.method.selection(problem)
            masks = [pruned]
            if self._pacing.is_look(stand.number) and damped.damping == stand.damping and moves_weights(self.method):
                with self.clock.measure("selection"):
                    slope = stand.favoured if stand.favoured in slopes else "loss"
                    masks.append(revise(quadratic, pruned, slopes[slope], stand.reach(slope), budget))
            for mask in masks:
                budget.check(mask)
                with self.clock.measure("update"):
                    yield from steps(replace(damped, pruned=mask), *self._moves(problem, slopes, mask))

    def _moves(self, problem: Problem, slopes: dict[str, Tensor], mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the steps of the method's update; without one, back to the trained values of what the mask keeps."""
        if moves_weights(self.method):
            return moves(self.method, problem, slopes, mask)
        trained = self.weights.flatten(self.dense.model)
        return (trained.masked_fill(mask, 0.0) - problem.weights).double(), {}

    def _best(self, candidates: list[Stand]) -> Stand:
        """Return the candidate with the smallest loss on the samples held out; the first of equals."""
        with self.clock.measure("loss"):
            entries = [self._held.at(candidate.values) for candidate in candidates]
            best = race(self._held, entries)[0]
            return replace(candidates[best], loss=entries[best].loss())

    def _rebuilt(self, stand: Stand, batches: list[Batch]) -> Stand:
        """Fit the layers anew, one after the other, to the dense network's; keep that if the held-out loss is less.

        Tried in looks, and in between for as long as it helps.
        """
        wanted = stand.rebuilt or self._pacing.is_look(stand.number)
        if stand.kind != "gram" or not wanted or not moves_weights(self.method):
            return replace(stand, rebuilt=False)
        with self.clock.measure("rebuild"):
            values = reconstruct(
                self.batch_loss, self.dense, self.weights, batches, stand.values, stand.pruned, stand.damping["gram"]
            )
        with self.clock.measure("loss"):
            loss = self._held.at(values).loss()
        if loss < stand.loss:
            return replace(stand, values=values, loss=loss, rebuilt=True)
        return replace(stand, rebuilt=False)

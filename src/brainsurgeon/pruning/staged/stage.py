"""One stage: examine the loss at the weights reached, choose what goes next, and move what stays.

The kept weights move by d_U + s·d_F + μ·d_last: the joint update for what is removed (CBS-U), the Newton step
d_F = −H_SS⁻¹a_S, and a part of the last step. A refit is a stage that prunes nothing. Damping, s, μ, the kind of
curvature and what a is the gradient of (the loss, or the distance from the dense outputs) are chosen on samples held
out from training; staying where one is stands among the candidates of every refit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.problem import Problem, Selection, Update
from brainsurgeon.engine.update import Keep
from brainsurgeon.events import Callback, Event, Value
from brainsurgeon.events.clock import Clock
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.sample_loss import LossJudge, SampleLoss, race
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.pruning.examine import CURVATURES, Examination, Rows, examine
from brainsurgeon.pruning.patterns import feasible_mask
from brainsurgeon.pruning.staged.candidates import LENGTHS, candidates, moves
from brainsurgeon.pruning.staged.pacing import Pacing
from brainsurgeon.pruning.staged.reconstruct import reconstruct
from brainsurgeon.pruning.staged.state import State
from brainsurgeon.samples.batches import Batch, batch_size, first
from brainsurgeon.samples.draws import generator_of
from brainsurgeon.samples.held_out import TrainingSamples

FEWEST_ROWS, MOST_ROWS, MOST_ENTRIES = 400, 1000, 120_000_000
"""Rows of gradients in a stage: within these bounds, and no more than so many entries."""
COLUMNS_PER_ROW = 8
"""Where a Fisher is taken again and again, smaller blocks do better than in one shot."""
JUDGED = 2000
"""Samples of a stage that a search compares masks on; those held out judge where the stage ends, and nothing else."""
HOPELESS = 1000
"""A Fisher with more weights than this for each of its rows does not compete."""


def rows_for(size: int) -> int:
    """Return how many rows of gradients a stage takes at most for so many weights."""
    return min(MOST_ROWS, max(FEWEST_ROWS, MOST_ENTRIES // size))


@dataclass(frozen=True)
class Stage:
    """What a stage works with; `losses` are the loss and, where outputs can be compared, the distance from the dense.

    `batch_loss` holds the model whose weights are set as the stages go on, `held` judges on the samples held out.
    """

    batch_loss: BatchLoss
    dense: BatchLoss
    losses: dict[str, BatchLoss]
    weights: PrunableWeights
    samples: TrainingSamples
    held: SampleLoss
    selections: tuple[Selection, ...]
    update: Update
    pacing: Pacing
    curvature: str
    blocks: str | int
    dtype: torch.dtype
    seed: int
    notify: Callback
    clock: Clock
    notes: list[str]

    def __call__(self, state: State, final: Budget) -> State:
        """Return the best of the places where the stage may end."""
        budget = self.pacing.schedule.budget_at(state.progress, final)
        stays = budget.total == int(state.pruned.sum())
        self.weights.assign(self.batch_loss.model, state.values)
        batches = list(self.samples.draw(self.pacing.share(state), state.number))
        judge = self._judge(batches, state)
        with self.clock.measure("gradients"):
            others, taken = self._other_slopes(batches, state)
        ends = []
        if stays:
            ends.append(replace(state.shortened(self.losses, LENGTHS[1]), last_step=torch.zeros_like(state.values)))
        for kind in self._kinds(batches, state):
            with self.clock.measure("gradients"):
                found = self._examine(kind, batches)
            taken += found.rows * self._rows(batches).group
            slopes = {"loss": found.gradient()} | others
            ends += self._ends(found, slopes, state.choosing(kind=kind), budget, judge)
        best = self._best(ends)
        if stays and ends[0].loss < best.loss:  # the race may have dropped it on a part of the samples
            best = ends[0]
        best = self._reconstructed(best, batches)
        idle = state.idle + 1 if stays and torch.equal(best.values, state.values) else 0
        best = replace(best, idle=idle, gradients=state.gradients + taken)
        self._tell(best)
        return best

    def _tell(self, state: State) -> None:
        choice = state.choice
        values: dict[str, Value] = {"pruned": int(state.pruned.sum()), "loss": state.loss, "curvature": choice.kind}
        values |= {"damping": choice.damping[choice.kind], "slope": choice.slope}
        values |= {"length": state.length(choice.slope or "loss"), "momentum": choice.momentum}
        values |= {"reconstructed": choice.reconstructed, "gradients": state.gradients}
        self.notify(Event("stages", state.number, self.pacing.schedule.total, values))

    def _kinds(self, batches: list[Batch], state: State) -> tuple[str, ...]:
        both = self.pacing.is_contest(state.number) and self.curvature == "auto"
        both = both and self.weights.size <= HOPELESS * self._rows(batches).count
        return CURVATURES if both else (state.choice.kind,)

    def _judge(self, batches: list[Batch], state: State) -> LossJudge | None:
        """Return what a search compares masks by, where the method has a search."""
        if not any(getattr(selection, "uses_loss", True) for selection in self.selections):
            return None
        sample = list(first(batches, JUDGED))
        return LossJudge(SampleLoss(self.batch_loss, self.weights, state.values, sample), self.clock)

    def _rows(self, batches: list[Batch]) -> Rows:
        most = rows_for(self.weights.size)
        count = sum(map(batch_size, batches))
        rows = count // -(-count // most)
        return Rows(rows, count // rows, self.blocks, COLUMNS_PER_ROW, self.dtype, True, may_vanish=True)

    def _examine(self, kind: str, batches: list[Batch]) -> Examination:
        found = examine(kind, self.batch_loss, self.weights, batches, self._rows(batches), self.notify)
        self.notes.extend(note for note in found.notes if note not in self.notes)
        return found

    def _other_slopes(self, batches: list[Batch], state: State) -> tuple[dict[str, Tensor], int]:
        """Return the slopes besides the loss's own, and their cost: between contests none where its own was best."""
        if state.choice.favoured == "loss" and not self.pacing.is_contest(state.number):
            return {}, 0
        others = {name: loss for name, loss in self.losses.items() if name != "loss"}
        samples = {name: SampleLoss(loss, self.weights, state.values, batches) for name, loss in others.items()}
        slopes = {name: sample.gradient(state.values, range(sample.num_batches)) for name, sample in samples.items()}
        return slopes, len(others) * sum(map(batch_size, batches))

    def _ends(
        self, found: Examination, slopes: dict[str, Tensor], state: State, budget: Budget, judge: LossJudge | None
    ) -> Iterator[State]:
        """Yield where the stage may end: masks for each damping, and steps of several lengths along each slope."""
        for damped in map(state.damped, self.pacing.dampings(state.number)):
            quadratic = found.model(state.values, damped.choice.damping[damped.choice.kind])
            generator = generator_of(self.seed + state.number)
            named = tuple((layer.name, layer.shape) for layer in self.weights.layers)
            problem = Problem(state.values, budget, generator, quadratic, judge, self.notify, self.clock, named)
            for pruned in self._masks(problem, state):
                budget.check(pruned)
                with self.clock.measure("update"):
                    yield from candidates(replace(damped, pruned=pruned), *self._moves(problem, slopes, pruned))

    def _masks(self, problem: Problem, state: State) -> list[Tensor]:
        if problem.budget.total == int(state.pruned.sum()):
            return [state.pruned]
        with self.clock.measure("selection"):
            return [feasible_mask(problem, selection(problem)) for selection in self.selections]

    def _moves(self, problem: Problem, slopes: dict[str, Tensor], mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the steps of the method's update; without one, back to the trained values of what the mask keeps."""
        if not isinstance(self.update, Keep):
            return moves(self.update, problem, slopes, mask)
        trained = self.weights.flatten(self.dense.model)
        return (trained.masked_fill(mask, 0.0) - problem.weights).double(), {}

    def _best(self, ends: list[State]) -> State:
        """Return the end with the smallest loss on the samples held out; the first of equals."""
        with self.clock.measure("loss"):
            entries = [self.held.at(end.values) for end in ends]
            best = race(self.held, entries)[0]
            return replace(ends[best], loss=entries[best].loss())

    def _reconstructed(self, state: State, batches: list[Batch]) -> State:
        """Fit the layers anew, one after the other, to the dense network's; keep that if the held-out loss is less.

        Tried in contests, and in between for as long as it helps.
        """
        wanted = state.choice.reconstructed or self.pacing.is_contest(state.number)
        if state.choice.kind != "gram" or not wanted or isinstance(self.update, Keep):
            return state.choosing(reconstructed=False)
        damping = state.choice.damping["gram"]
        with self.clock.measure("reconstruction"):
            values = reconstruct(
                self.batch_loss, self.dense, self.weights, batches, state.values, state.pruned, damping
            )
        with self.clock.measure("loss"):
            loss = self.held.at(values).loss()
        if loss < state.loss:
            return replace(state, values=values, loss=loss).choosing(reconstructed=True)
        return state.choosing(reconstructed=False)

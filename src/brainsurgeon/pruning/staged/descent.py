"""Training in a staged run, by masked SGD: many short steps on small batches, where one long step goes no further.

Each step is v ← 0.9v − η·ρ·g/(√q + 0.1√q̄), w ← w + v on the kept weights: g is the gradient of one batch, q_i the mean
squared gradient of weight i; q̄ its mean and ρ the root mean square of the kept weights are those of the layer: one
layer's weights may be many times as large as another's. The learning rate η falls to zero by the end, so that the
noise of the batches averages out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brainsurgeon.events import Callback, Event
from brainsurgeon.events.clock import Clock, pulse
from brainsurgeon.network.gradients import mean_squares
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.sample_loss import SampleLoss, batch_gradient
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.pruning.staged.schedule import Stages
from brainsurgeon.pruning.staged.state import State
from brainsurgeon.samples.batches import Batch, batch_size
from brainsurgeon.samples.held_out import TrainingSamples
from brainsurgeon.samples.mixup import mixup

RATES = (256.0, 64.0, 16.0, 4.0, 1.0, 0.25, 0.0625)
"""Of the first training: the largest first, until a smaller one leads less far."""
TRIED = 3
"""Trainings that the first one may try in all: very large rates are soon given up."""
LONGER = 4
"""A later training is so many times as long as each of the first ones, and begins with so much larger a rate."""
SCOUTED = 1000
"""Samples whose gradients the steps are scaled by."""
MOMENTUM = 0.9
FLOOR = 0.1
GIVEN_UP = {1 / 16: 2.0, 1 / 8: 1.6, 1 / 4: 1.4, 1 / 2: 1.2}
"""How much higher than at the start the held-out loss may be after a share of the steps; else they are given up."""
PARTS = (1.0, 0.75, 0.5, 0.25)
"""Of the way from the start to where the steps have led, the best part is taken."""


@dataclass(frozen=True)
class Descent:
    """Trains along what the held-out samples judge by, for as long as gradients and time are left.

    With `mixing` the samples are mixed (mixup): for a loss that asks for no targets.
    """

    loss: BatchLoss
    held: SampleLoss
    weights: PrunableWeights
    samples: TrainingSamples
    schedule: Stages
    max_gradients: int
    owed: Callable[[State], int]
    notify: Callback
    clock: Clock
    mixing: bool = False

    def __call__(self, state: State) -> State:
        """Return where training leads, or the same place if its held-out loss is not less there.

        The first one finds out how large the rate may be. Each later one is longer, and begins with a larger rate;
        where it is given up it begins again with a smaller one.
        """
        first = self.schedule.trainings_from(state.number) == self.schedule.trainings
        with self.clock.measure("training"):
            squares, some, count = self._prepare(state, first)
            best = replace(state, loss=self._held_loss(state.values), gradients=state.gradients + some)
            taken, left = best.gradients, TRIED * count if first else count
            for factor in RATES if first else (LONGER**-power for power in range(-1, len(RATES))):
                rate, length = state.choice.rate * factor, count if first else left
                if not 0 < length <= left:
                    break
                reached, steps = take_steps(
                    self.loss,
                    self.weights,
                    self._batches(length, state.number),
                    length,
                    state.values,
                    state.pruned,
                    squares,
                    rate,
                    self._held_loss,
                )
                taken, left = taken + steps, left - steps
                ends = [state.values + part * (reached - state.values) for part in PARTS]
                loss, number = min((self._held_loss(end), number) for number, end in enumerate(ends))
                further = loss < best.loss
                if further:
                    best = replace(state, values=ends[number], loss=loss).choosing(rate=rate)
                found = best.values is not state.values
                if steps >= length and (not first or (found and not further)):
                    break
        values = {"pruned": int(best.pruned.sum()), "loss": best.loss, "rate": best.choice.rate, "samples": count}
        values |= {"gradients": taken}
        self.notify(Event("stages", best.number, self.schedule.total, values))
        return replace(best, gradients=taken, trained=state.trained + taken - state.gradients)

    def _batches(self, count: int, number: int) -> Iterable[Batch]:
        batches = self.samples.draw_again(count, number)
        seed = 1_000_003 * self.samples.seed + number
        return map(self.held.layout, mixup(batches, seed) if self.mixing else batches)

    def _held_loss(self, values: Tensor) -> float:
        return self.held.at(values).loss()

    def _prepare(self, state: State, first: bool) -> tuple[Tensor, int, int]:
        """Return the mean squared gradients, from how many samples, and how many the training may take."""
        begun, left = time.monotonic(), self.max_gradients - state.gradients
        some = min(SCOUTED, self.samples.size, left // 10)
        if some < 1:
            return torch.zeros_like(state.values), 0, 0
        self.weights.assign(self.loss.model, state.values)
        _, squares, some, _ = mean_squares(self.loss, self.weights, self.samples.draw(some, state.number), some)
        now = time.monotonic()
        affordable = some * self.clock.left / max(now - begun, 1e-9)
        trainings = self.schedule.trainings_from(state.number)
        units = TRIED + LONGER * (trainings - 1) if first else LONGER * trainings
        ours = left - some - self.owed(state)
        affordable *= max(0.0, ours) / max(left, 1)
        share = int(max(0, min(ours, affordable)) / units)
        return squares, some, share if first else LONGER * share


def take_steps(
    batch_loss: BatchLoss,
    weights: PrunableWeights,
    batches: Iterable[Batch],
    count: int,
    values: Tensor,
    pruned: Tensor,
    squares: Tensor,
    rate: float,
    held_loss: Callable[[Tensor], float],
) -> tuple[Tensor, int]:
    """Return where one step for each batch of `count` samples in all leads, and how many samples it took.

    Weights of P stay at zero. The steps are given up, where they have come to, once the held-out loss is well above
    that of the start.
    """
    scale = rate * _scale(weights, values, pruned, squares)
    place, speed, done = values.double(), torch.zeros_like(scale), 0
    start, checks = held_loss(values), {share * count: most for share, most in GIVEN_UP.items()}
    for batch in batches:
        pulse()
        gradient = batch_gradient(batch_loss, weights, place.to(values.dtype), batch)
        speed = MOMENTUM * speed - (1 - done / count) * scale * gradient
        place = place + speed
        done += batch_size(batch)
        passed = [at for at in checks if at <= done]
        if passed:
            most = min(checks.pop(at) for at in passed)
            if not held_loss(place.to(values.dtype)) <= most * start:
                break
    return place.to(values.dtype).masked_fill(pruned, 0.0), done


def _scale(weights: PrunableWeights, values: Tensor, pruned: Tensor, squares: Tensor) -> Tensor:
    """Return ρ/(√q + 0.1√q̄) for each kept weight, 0 for those of P and of layers without a gradient."""
    scale = torch.zeros_like(squares)
    for layer in weights.layers:
        part = layer.columns
        kept, level = values[part][~pruned[part]].double(), squares[part].mean().sqrt()
        if kept.numel() and bool(level > 0):
            scale[part] = kept.square().mean().sqrt() / (squares[part].sqrt() + FLOOR * level)
    return scale.masked_fill(pruned, 0.0)

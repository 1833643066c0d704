"""Walks in a staged run: many short steps on small batches, for where one long step goes no further.

Each step is v ← 0.9v − s·ρ·g/(√q + 0.1√q̄), w ← w + v on the kept weights: g is the gradient of one batch, q_i the mean
squared gradient of weight i; q̄ its mean and ρ the root mean square of the kept weights are those of the layer: one
layer's weights may be many times as large as another's. The stride s falls to zero by the end, so that the noise of the
batches averages out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .batches import Batch, batch_size
from .clock import Clock
from .events import Callback, Event
from .gradients import mean_squares
from .loss import BatchLoss
from .mixing import blend
from .sample_loss import SampleLoss, batch_gradient
from .samples import TrainingSamples
from .schedule import Stages
from .stand import Stand
from .weights import PrunableWeights

STRIDES = (256.0, 64.0, 16.0, 4.0, 1.0, 0.25, 0.0625)
"""Of the first walk: the longest first, until a shorter one leads less far."""
TRIED = 3
"""Ways that the first walk may go in all: the very long strides are soon given up."""
LONG_WALK = 4
"""A later walk is so many times as long as each of the first ones, and begins with so much longer a stride."""
SCOUTED = 1000
"""Samples whose gradients a walk is scaled by."""
MOMENTUM = 0.9
FLOOR = 0.1
LOOKS = {1 / 16: 2.0, 1 / 8: 1.6, 1 / 4: 1.4, 1 / 2: 1.2}
"""How much higher than at the start the held-out loss may be after a share of the way; else the walk is given up."""
PARTS = (1.0, 0.75, 0.5, 0.25)
"""Of the way from the start to where a walk has led, the best part is taken."""


@dataclass(frozen=True)
class Walker:
    """Walks along what the held-out samples judge by, for as long as gradients and time are left.

    With `blending` the samples walked on are blended: for a loss that asks for no targets.
    """

    loss: BatchLoss
    held: SampleLoss
    weights: PrunableWeights
    samples: TrainingSamples
    schedule: Stages
    max_gradients: int
    deadline: float
    owed: Callable[[Stand], int]
    notify: Callback
    clock: Clock
    blending: bool = False

    def __call__(self, stand: Stand) -> Stand:
        """Return where a walk leads, or the same place if its held-out loss is not less there.

        The first walk finds out how long a stride may be. Each later one goes further, and begins with a longer stride;
        where it is given up it begins again with a shorter one.
        """
        first = self.schedule.walks_from(stand.number) == self.schedule.walks
        with self.clock.measure("walk"):
            squares, some, count = self._scout(stand, first)
            best = replace(stand, loss=self._held_loss(stand.values), gradients=stand.gradients + some)
            taken, left = best.gradients, TRIED * count if first else count
            for factor in STRIDES if first else (LONG_WALK**-power for power in range(-1, len(STRIDES))):
                stride, length = stand.stride * factor, count if first else left
                if not 0 < length <= left:
                    break
                reached, steps = take_steps(
                    self.loss, self.weights, self._batches(length, stand.number), length, stand.values,
                    stand.pruned, squares, stride, self._held_loss,
                )  # fmt: skip
                taken, left = taken + steps, left - steps
                ends = [stand.values + part * (reached - stand.values) for part in PARTS]
                loss, number = min((self._held_loss(end), number) for number, end in enumerate(ends))
                further = loss < best.loss
                if further:
                    best = replace(stand, values=ends[number], stride=stride, loss=loss)
                found = best.values is not stand.values
                if steps >= length and (not first or (found and not further)):
                    break
        told = {"pruned": int(best.pruned.sum()), "loss": best.loss, "stride": best.stride, "samples": count}
        told |= {"gradients": taken}
        self.notify(Event("stages", best.number, self.schedule.total, told))
        return replace(best, gradients=taken, walked=stand.walked + taken - stand.gradients)

    def _batches(self, count: int, number: int) -> Iterable[Batch]:
        batches = self.samples.draw_again(count, number)
        seed = 1_000_003 * self.samples.seed + number
        return map(self.held.layout, blend(batches, seed) if self.blending else batches)

    def _held_loss(self, values: Tensor) -> float:
        return self.held.at(values).loss()

    def _scout(self, stand: Stand, first: bool) -> tuple[Tensor, int, int]:
        """Return the mean squared gradients, from how many samples, and how many a walk may take."""
        begun, left = time.monotonic(), self.max_gradients - stand.gradients
        some = min(SCOUTED, self.samples.size, left // 10)
        if some < 1:
            return torch.zeros_like(stand.values), 0, 0
        self.weights.assign(self.loss.model, stand.values)
        _, squares, some, _ = mean_squares(self.loss, self.weights, self.samples.draw(some, stand.number), some)
        now = time.monotonic()
        affordable = some * (self.deadline - now) / max(now - begun, 1e-9)
        walks = self.schedule.walks_from(stand.number)
        units = TRIED + LONG_WALK * (walks - 1) if first else LONG_WALK * walks
        ours = left - some - self.owed(stand)
        affordable *= max(0.0, ours) / max(left, 1)
        share = int(max(0, min(ours, affordable)) / units)
        return squares, some, share if first else LONG_WALK * share


def take_steps(
    batch_loss: BatchLoss,
    weights: PrunableWeights,
    batches: Iterable[Batch],
    count: int,
    values: Tensor,
    pruned: Tensor,
    squares: Tensor,
    stride: float,
    held_loss: Callable[[Tensor], float],
) -> tuple[Tensor, int]:
    """Return where one step for each batch of `count` samples in all leads, and how many samples it took.

    Weights of P stay at zero. A walk is given up, where it has come to, once its held-out loss is well above that of
    its start.
    """
    scale = stride * _scale(weights, values, pruned, squares)
    place, speed, done = values.double(), torch.zeros_like(scale), 0
    start, looks = held_loss(values), {share * count: most for share, most in LOOKS.items()}
    for batch in batches:
        gradient = batch_gradient(batch_loss, weights, place.to(values.dtype), batch)
        speed = MOMENTUM * speed - (1 - done / count) * scale * gradient
        place = place + speed
        done += batch_size(batch)
        passed = [look for look in looks if look <= done]
        if passed:
            most = min(looks.pop(look) for look in passed)
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

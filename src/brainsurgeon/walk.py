"""Walks at the end of a staged run: many short steps on small batches, for where one long step goes no further.

Each step is v ← 0.9v − s·ρ·g/(√q + 0.1√q̄), w ← w + v on the kept weights: g is the gradient of one batch, q_i the mean
squared gradient of weight i and q̄ its mean, ρ the root mean square of the kept weights. The stride s falls to zero by
the end, so that the noise of the batches averages out.
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
from .sample_loss import SampleLoss, batch_gradient
from .samples import TrainingSamples
from .schedule import Stages
from .stand import Stand
from .weights import PrunableWeights

STRIDES = (1.0, 4.0, 16.0, 64.0, 256.0)
LONG_WALK = 4
"""A later walk is so many times as long as each of the first ones."""
SCOUTED = 1000
"""Samples whose gradients a walk is scaled by."""
MOMENTUM = 0.9
FLOOR = 0.1
LOOKS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""Shares of the way after which a walk that leads away is given up."""
AWAY = 1.1


@dataclass(frozen=True)
class Walker:
    """Walks along what the held-out samples judge by, for as long as gradients and time are left."""

    loss: BatchLoss
    held: SampleLoss
    weights: PrunableWeights
    samples: TrainingSamples
    schedule: Stages
    max_gradients: int
    deadline: float
    notify: Callback
    clock: Clock

    def __call__(self, stand: Stand) -> Stand:
        """Return where a walk leads, or the same place if its held-out loss is not less there.

        The first walk tries strides of several lengths; each later one goes on with the best, and goes further.
        """
        first = stand.number == self.schedule.looks + 1
        with self.clock.measure("walk"):
            squares, some, count = self._scout(stand, first)
            best = replace(stand, loss=self._held_loss(stand.values), gradients=stand.gradients + some)
            taken = best.gradients
            for factor in (STRIDES if first else STRIDES[:1]) if count else ():
                stride = stand.stride * factor
                reached, steps = take_steps(
                    self.loss, self.weights, self.samples.draw_again(count, stand.number), count,
                    stand.values, stand.pruned, squares, stride, self._held_loss,
                )  # fmt: skip
                taken += steps
                loss = self._held_loss(reached)
                if loss < best.loss:
                    best = replace(stand, values=reached, stride=stride, loss=loss)
        told = {"pruned": int(best.pruned.sum()), "loss": best.loss, "stride": best.stride, "samples": count}
        told |= {"gradients": taken}
        self.notify(Event("stages", best.number, self.schedule.total, told))
        # A longer way allows longer strides; after it they grow shorter, whether it led anywhere or not.
        stride = best.stride * LONG_WALK if first else best.stride / LONG_WALK
        return replace(best, stride=stride, gradients=taken)

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
        walks = self.schedule.total - stand.number + 1
        units = len(STRIDES) + LONG_WALK * (walks - 1) if first else LONG_WALK * walks
        share = int(max(0, min(left - some, affordable)) / units)
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
    scale = (squares.sqrt() + FLOOR * squares.mean().sqrt()).clamp_min(1e-30).masked_fill(pruned, torch.inf)
    kept = values[~pruned].double()
    size = stride * float(kept.square().mean().sqrt()) if kept.numel() else 0.0
    place, speed, done = values.double(), torch.zeros_like(scale), 0
    most, looks = AWAY * held_loss(values), [share * count for share in LOOKS]
    for batch in batches:
        gradient = batch_gradient(batch_loss, weights, place.to(values.dtype), batch)
        speed = MOMENTUM * speed - size * (1 - done / count) * gradient / scale
        place = place + speed
        done += batch_size(batch)
        if looks and done >= looks[0]:
            looks = [look for look in looks if look > done]
            if not held_loss(place.to(values.dtype)) <= most:
                break
    return place.to(values.dtype).masked_fill(pruned, 0.0), done

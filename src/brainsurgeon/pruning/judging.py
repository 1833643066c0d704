"""What held-out samples say of a model; where time is short, no more of them are asked than there is time for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from brainsurgeon.events.clock import Clock
from brainsurgeon.network.distillation import held_out_distance
from brainsurgeon.network.loss import BatchLoss, OutputLoss
from brainsurgeon.pruning.finish import measured_loss
from brainsurgeon.pruning.ranks import mean_of_shares
from brainsurgeon.samples.batches import Batch, batch_size, cut, first
from brainsurgeon.samples.held_out import FEWEST

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

ENOUGH = 500
"""With fewer held-out samples than this their loss is too noisy a judge: the distance from the dense outputs tells more
of each sample, and is taken in its place; the dense outputs teach more than the labels do, too."""
SHARE = 0.05
"""Of the time that is left, one look at the held-out samples takes no more than this."""
LOOKS = 3.0
"""Looks at them that are still to come when the time of a method is up, with what is slower then."""
LEAST = 0.1
"""Seconds that are kept in any case, to write the weights and to count."""


def affordable(batch_loss: BatchLoss, held_out: list[Batch], clock: Clock) -> list[Batch]:
    """Return the held-out samples, or the first of them where a limit leaves no time for more.

    The time of the last measuring is kept back from the clock.
    """
    if not clock.is_limited:
        return held_out
    each = seconds_a_sample(batch_loss, held_out[0])
    count = sum(map(batch_size, held_out))
    count = max(FEWEST, min(count, int(SHARE * max(clock.left, 0.0) / max(each, 1e-9))))
    clock.keep_back(LOOKS * count * each + LEAST)
    return list(first(held_out, count))


@torch.no_grad()
def seconds_a_sample(batch_loss: BatchLoss, batch: Batch) -> float:
    """Return the time of a sample's forward pass, from a batch."""
    float(batch_loss(cut(batch, slice(FEWEST))))  # the first time of anything is slow
    start = time.monotonic()
    float(batch_loss(batch))  # a GPU has been waited for when the number is here
    return (time.monotonic() - start) / batch_size(batch)


def judged(
    surgery: Surgery,
    model: nn.Module,
    held_out: Sequence[Batch],
    distance: OutputLoss | None = None,
    shared: bool = True,
) -> float | None:
    """Return the mean loss of a model or, given how outputs are compared, its distance from the dense network.

    Every rank takes some of the samples; if the work is not `shared`, all of them.
    """

    def mean(some: Sequence[Batch]) -> float | None:
        if distance is not None:
            return held_out_distance(model, surgery.batch_loss.model, distance, list(some))
        return measured_loss(model, surgery.loss, list(some), surgery.device)

    return mean_of_shares(mean, held_out) if shared else mean(held_out)

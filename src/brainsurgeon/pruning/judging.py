"""Held-out samples and the clock: where time is short, no more of them are asked than there is time for."""

from __future__ import annotations

import time

import torch

from brainsurgeon.events.clock import Clock
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.samples.batches import Batch, batch_size, cut, first
from brainsurgeon.samples.held_out import FEWEST

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
    batch_loss(cut(batch, slice(FEWEST)))  # the first time of anything is slow
    start = time.monotonic()
    batch_loss(batch)
    return (time.monotonic() - start) / batch_size(batch)

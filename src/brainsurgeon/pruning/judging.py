"""Held-out samples and the clock: where time is short, no more of them are asked than there is time for."""

from __future__ import annotations

import time

import torch

from brainsurgeon.events.clock import Clock
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.samples.batches import Batch, batch_size, cut, first
from brainsurgeon.samples.held_out import FEWEST

SHARE = 0.05
"""Of the time that is left, one look at the held-out samples takes no more than this."""
LOOKS = 2.0
"""Looks at them that are still to come when the time of a method is up, with what is slower then."""
LEAST = 0.1
"""Seconds that are kept in any case, to write the weights and to count."""


def affordable(batch_loss: BatchLoss, held_out: list[Batch], clock: Clock) -> list[Batch]:
    """Return the held-out samples, or the first of them where a limit leaves no time for more.

    The time of the last measuring is kept back from the clock.
    """
    if not clock.is_limited:
        return held_out
    probe = cut(held_out[0], slice(FEWEST))
    with torch.no_grad():
        batch_loss(probe)  # the first time of anything is slow
        start = time.monotonic()
        batch_loss(held_out[0])
        each = (time.monotonic() - start) / batch_size(held_out[0])
    count = sum(map(batch_size, held_out))
    count = max(FEWEST, min(count, int(SHARE * max(clock.left, 0.0) / max(each, 1e-9))))
    clock.keep_back(LOOKS * count * each + LEAST)
    return list(first(held_out, count))

"""Which training samples are drawn more often than others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brainsurgeon.distributed import agreed, gather_rows, rank, shard, sum_over_ranks, world_size
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.doubt import doubts, emphasis
from brainsurgeon.network.loss import OutputLoss
from brainsurgeon.pruning.judging import seconds_a_sample

if TYPE_CHECKING:
    from brainsurgeon.pruning.gradual.run import GradualRun

QUARTER = 0.25
"""The share of the draws that doubt decides where nothing else is said."""
ASKING = 0.1
"""Of the time that is left, asking the dense network about all training samples takes no more than this."""


def find_weights(run: GradualRun) -> tuple[float, Tensor | None]:
    """Return the share of the draws that doubt decides, and the weights of the training samples, None for even ones.

    The dense network is asked once about every sample: forward passes, no gradients.
    """
    share, samples = run.method.doubt, run.samples
    if share is None:
        share = QUARTER if not run.few and samples.size <= run.method.max_gradients else 0.0
    if not share:
        return 0.0, None
    parts = _asked_by(run)
    if parts is None:
        if run.method.doubt is not None:
            raise BrainsurgeonError("doubt needs a loss of classes, and outputs with one row of scores a sample")
        return 0.0, None
    if samples.doubt is None:
        if _takes_too_long(run):
            run.notes.append("there was no time to ask the dense network about all samples: all are drawn evenly")
            return 0.0, None
        with run.task.clock.measure("doubt"):
            samples.doubt = _asked(run, parts)
    weights = emphasis(samples.doubt, share)
    return (0.0 if weights is None else share), weights


def _asked(run: GradualRun, parts: OutputLoss) -> Tensor:
    """Return what the dense network says of all training samples; each rank asks about some of their batches."""
    own = doubts(parts, run.teacher.dense, run.samples.in_order(shard))
    counts = torch.zeros(world_size())
    counts[rank()] = len(own)
    return gather_rows(own, sum_over_ranks(counts).long().tolist())


@torch.no_grad()
def _asked_by(run: GradualRun) -> OutputLoss | None:
    """Return how the dense network's outputs are had, None where they are no scores that can be doubted."""
    parts = run.teacher.parts
    return parts if parts and parts.are_scores(parts.outputs(run.dense, run.held_out[0])) else None


def _takes_too_long(run: GradualRun) -> bool:
    clock = run.task.clock
    if not clock.is_limited:
        return False
    seconds = run.samples.size * seconds_a_sample(run.surgery.batch_loss, run.held_out[0])
    return bool(agreed(seconds > ASKING * clock.left))

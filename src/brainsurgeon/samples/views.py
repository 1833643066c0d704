"""Several views of the same samples: the dense network knows its training samples, and answers better for many views.

The mean of its outputs over views of a sample is nearer to what it has learnt than its outputs for one of them, as long
as a view is still the same sample: its target is the same, and its outputs have no places that could have moved.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from brainsurgeon.samples.augment import Augment
from brainsurgeon.samples.batches import Batch, map_tensors, tensors_of


class Views(NamedTuple):
    """A batch of a training step, and the same samples changed in other ways, for the dense network alone."""

    own: Batch
    others: tuple[Batch, ...]


def own_view(batch: Batch) -> Batch:
    """Return the batch that the student sees."""
    return batch.own if isinstance(batch, Views) else batch


def all_views(batch: Batch) -> list[Batch]:
    """Return the batches that the dense network sees, the student's first."""
    return [batch.own, *batch.others] if isinstance(batch, Views) else [batch]


def draw_views(batch: Batch, augment: Augment, generator: torch.Generator, count: int) -> Batch:
    """Return a batch that is changed once, with `count` − 1 other views where there is more than one."""
    if count == 1:
        return augment(batch, generator)
    own, *others = (augment(_copy(batch), generator) for _ in range(count))
    return Views(own, tuple(others))


def keeps_targets(augment: Augment, batch: Batch) -> bool:
    """Say whether an `augment` changes the inputs of a batch (inputs, targets) and nothing else."""
    if not isinstance(batch, list | tuple) or len(batch) < 2:
        return False
    changed = augment(_copy(batch), torch.Generator().manual_seed(0))
    before, after = tensors_of(list(batch[1:])), tensors_of(list(changed[1:]))
    return len(before) == len(after) and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def _copy(batch: Batch) -> Batch:
    return map_tensors(torch.clone, batch)  # an `augment` may write into what it is given

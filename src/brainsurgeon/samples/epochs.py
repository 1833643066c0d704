"""Samples that are read again and again: split once, shuffled for every epoch, cut into batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.samples.batches import Batch, as_batches, batch_size, concatenate, cut, is_one_batch, moved


def read_epoch(data: Any, size: int, generator: torch.Generator, device: torch.device) -> Iterator[Batch]:
    """Yield the batches of one epoch; those of a loader or an iterable are taken as they come, empty ones left out.

    Where the batches are ours to cut and the last would hold one sample, that sample joins the batch before it: batch
    normalisation cannot train on one alone.
    """
    if is_one_batch(data):
        order = torch.randperm(batch_size(data), generator=generator)
        batches: Iterator[Batch] = (cut(data, chosen) for chosen in order.split(size))
    elif _is_indexed(data):
        batches = iter(DataLoader(data, size, shuffle=True, generator=generator))
    else:
        batches = as_batches(data, generator)
    batches = (moved(batch, device) for batch in batches)
    if _leaves_one(data, size):
        batches = _ends_joined(batches, steps_of(data, size) or 1)
    for batch in batches:
        if batch_size(batch):  # the mean loss of no samples is not a number
            yield batch


def _ends_joined(batches: Iterator[Batch], count: int) -> Iterator[Batch]:
    """Yield `count` batches, the last of which is all that come after the others."""
    yield from islice(batches, count - 1)
    yield concatenate(list(batches))


def split(data: Any, share: float, generator: torch.Generator) -> tuple[Any, Any]:
    """Return the samples without a random share of them, and that share."""
    if not is_one_batch(data) and not _is_indexed(data):
        raise BrainsurgeonError(
            f"some samples are held out to choose the best epoch, and a {type(data).__name__} cannot be split: give "
            "held_out=…, or held_out_share=0 to keep the last weights"
        )
    order = torch.randperm(batch_size(data) if is_one_batch(data) else len(data), generator=generator)
    count = max(1, round(share * len(order)))
    if count >= len(order):
        raise BrainsurgeonError(f"{len(order)} sample(s) are too few to hold some out: give more, or held_out_share=0")
    if is_one_batch(data):
        return cut(data, order[count:]), cut(data, order[:count])
    return Subset(data, order[count:].tolist()), Subset(data, order[:count].tolist())


def steps_of(data: Any, size: int) -> int | None:
    """Return the number of batches in an epoch; None where it cannot be known."""
    count = _count(data)
    if count is not None:
        return math.ceil(count / size) - _leaves_one(data, size)
    try:
        return max(1, len(data))
    except TypeError:
        return None


def _leaves_one(data: Any, size: int) -> bool:
    """Say whether batches of a size, cut here, would leave a single sample for the last."""
    count = _count(data) or 0
    return count > size > 1 and count % size == 1


def _count(data: Any) -> int | None:
    """Return the number of samples where the batches are cut here; None where they are taken as they come."""
    if is_one_batch(data):
        return batch_size(data)
    return len(data) if _is_indexed(data) else None


def _is_indexed(data: Any) -> bool:
    return isinstance(data, Dataset) and not isinstance(data, IterableDataset) and hasattr(data, "__len__")

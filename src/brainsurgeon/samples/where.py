"""Where in the user's data a sample lies: an error should name it by a number that the user knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from brainsurgeon.samples.batches import Batch, batch_size, is_one_batch, tensors_of

MOST_SEARCHED = 20_000
"""Samples of a data set that are looked through."""


def where(data: Any, sample: Batch) -> str:
    """Return where a batch of one sample lies in the data, in words; empty where it is not found there."""
    if isinstance(data, DataLoader):
        data = data.dataset
    try:
        if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
            items = (default_collate([data[k]]) for k in range(min(len(data), MOST_SEARCHED)))  # type: ignore[arg-type]
            return next((f"index {k} of the data set" for k, item in enumerate(items) if _rows(item, sample)), "")
        if is_one_batch(data):
            return next((f"index {k} of the data" for k in _rows(data, sample)), "")
        if isinstance(data, Iterable) and not isinstance(data, Iterator):
            for number, batch in enumerate(data):
                for k in _rows(batch, sample):
                    return f"sample {k} of batch {number} of the data"
    except Exception:  # a user's data set may raise anything, and this only serves to explain another error
        return ""
    return ""


def _rows(batch: Batch, sample: Batch) -> list[int]:
    """Return which samples of a batch are this one, NaN being equal to NaN."""
    ours, wanted = tensors_of(batch), tensors_of(sample)
    if [t.shape[1:] for t in ours] != [t.shape[1:] for t in wanted]:
        return []
    same = torch.ones(batch_size(batch), dtype=torch.bool)
    for mine, other in zip(ours, wanted, strict=True):
        same &= _equal(mine.detach().cpu(), other.detach().cpu())
    return same.nonzero().squeeze(1).tolist()


def _equal(mine: Tensor, other: Tensor) -> Tensor:
    equal = (mine == other) | ((mine != mine) & (other != other))
    return equal.flatten(1).all(1) if equal.dim() > 1 else equal

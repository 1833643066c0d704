"""Training samples for a run in stages: a part held out once and for all, the rest drawn from, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .batches import READ, Batch, as_batches, batch_size, cut, is_one_batch, map_tensors
from .errors import BrainsurgeonError

HELD_OUT_SHARE = 0.2
MOST_HELD_OUT = 2000
MOST_READ = 20_000
"""Samples that are read from a loader or another iterable, which cannot be drawn from at random."""


class TrainingSamples:
    """At most `limit` samples, a fifth of them (at most 2,000) held out to judge steps on.

    Samples that lie in memory as tensors are drawn one by one; a loader or another iterable is read once, and its
    batches are drawn. What a stage draws depends on the seed and its number alone, so that a run can be resumed.
    """

    def __init__(self, data: Any, seed: int, device: torch.device, limit: int | None = None):
        self._seed, self._device = seed, device
        generator = torch.Generator().manual_seed(seed)
        if is_one_batch(data):
            order = torch.randperm(batch_size(data), generator=generator)[:limit]
            held = min(MOST_HELD_OUT, int(HELD_OUT_SHARE * len(order)))
            self._units: list[Batch] | None = None
            self._data, self._order, self._held = data, order[held:], [data_part(data, order[:held])]
            self.size = len(self._order)
        else:
            units = _read(as_batches(data, generator), limit or MOST_READ)
            total, wanted = sum(map(batch_size, units)), 0.0
            self._held = []
            while units and wanted < min(MOST_HELD_OUT, HELD_OUT_SHARE * total):
                self._held.append(units.pop(0))
                wanted += batch_size(self._held[-1])
            self._units, self.size = units, sum(map(batch_size, units))
        if not self.size or not self._held or not batch_size(self._held[0]):
            raise BrainsurgeonError(
                "too little data for a run in stages: at least 5 samples (2 batches of a loader) are needed, because a "
                "fifth is held out to judge steps on"
            )

    @property
    def held(self) -> int:
        """The number of samples held out."""
        return sum(map(batch_size, self._held))

    def held_out(self) -> list[Batch]:
        """Return the samples that no gradient is ever taken on."""
        return [self._move(batch) for batch in self._held]

    def draw(self, count: int, stage: int) -> Iterator[Batch]:
        """Yield `count` samples for a stage (all there are where there are fewer), each at most once."""
        generator = torch.Generator().manual_seed(1_000_003 * (self._seed + 1) + stage)
        if self._units is None:
            order = self._order[torch.randperm(len(self._order), generator=generator)][:count]
            for chosen in order.split(READ):
                yield self._move(data_part(self._data, chosen))
            return
        for number in torch.randperm(len(self._units), generator=generator).tolist():
            if count <= 0:
                return
            batch = cut(self._units[number], slice(count))
            count -= batch_size(batch)
            yield self._move(batch)

    def _move(self, batch: Batch) -> Batch:
        return map_tensors(lambda tensor: tensor.to(self._device, non_blocking=True), batch)


def data_part(data: Batch, chosen: torch.Tensor) -> Batch:
    """Return some samples of tensors, wherever these lie."""
    return map_tensors(lambda tensor: tensor[chosen.to(tensor.device)], data)


def _read(batches: Iterator[Batch], limit: int) -> list[Batch]:
    units, count = [], 0
    for batch in batches:
        batch = cut(batch, slice(limit - count))
        if batch_size(batch):
            units.append(batch)
        count += batch_size(batch)
        if count >= limit:
            break
    return units

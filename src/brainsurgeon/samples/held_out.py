"""Training samples for a run in stages: a part held out once and for all, the rest drawn from, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import pulse
from brainsurgeon.samples.batches import (
    READ,
    Batch,
    Batches,
    as_batches,
    at_random,
    batch_size,
    cut,
    is_one_batch,
    is_tokens,
    map_tensors,
    moved,
    regroup,
    sent,
    tensors_of,
)
from brainsurgeon.samples.draws import drawn, generator_of

FEWEST = 5
FEW_HELD_OUT, MOST_HELD_OUT = 100, 2000
HELD_BATCH, HELD_TEXTS = 64, 8
"""Held-out samples that are judged at once; of a text every token has outputs as many as the vocabulary."""
BROUGHT = 2 << 30
"""Bytes of training samples that are moved to a GPU once and for all."""
LOOKED = 256
"""Training samples that are asked about at once: without gradients they hold less than a quarter of them in a step."""
EPOCH = 10_000
"""Sets the draws of later epochs apart from those of stages."""
MOST_READ = 20_000
"""Samples that are read from a loader or another iterable, which cannot be drawn from at random."""
MORE = f"of the data {MOST_READ:,} samples were read: max_samples reads more, and tensors are drawn from as a whole"
"""What is told where there were more."""


def held_out_of(count: int, wanted: int = FEW_HELD_OUT) -> int:
    """Return how many samples are held out: a tenth and at most 2,000, or as many as are wanted and a fifth allows.

    A hundred tell one candidate from another by the distance from the dense outputs; where samples are few, each one
    more to train on is worth much. A metric with its interval wants more.
    """
    return min(MOST_HELD_OUT, max(count // 10, min(count // 5, wanted)))


class TrainingSamples:
    """At most `limit` samples, a part of them held out to judge steps on (see `held_out_of`).

    Samples that lie in memory as tensors are drawn one by one; a loader or another iterable is read once, and its
    batches, less what is held out of each, are drawn. What a stage draws depends on the seed and its number alone, so
    that a run can be resumed.
    """

    def __init__(
        self, data: Any, seed: int, device: torch.device, limit: int | None = None, wanted: int = FEW_HELD_OUT
    ):
        if limit is not None and limit < FEWEST:
            raise BrainsurgeonError(f"max_samples must be at least {FEWEST} (some are held out), got {limit}")
        self.seed, self._device, self.notes = seed, device, tuple[str, ...]()
        generator = torch.Generator().manual_seed(seed)
        if is_one_batch(data):
            order = torch.randperm(batch_size(data), generator=generator)[:limit]
            held = held_out_of(len(order), wanted)
            self._units: list[Batch] | None = None
            self._data, self._order, self._held = data, order[held:], [data_part(data, order[:held])]
            self._bring(device)
            self.size = len(self._order)
        else:
            read = read_once(data, seed, limit)
            self._held, self._units = _hold_out(read, wanted)
            self.size = sum(map(batch_size, self._units))
            if limit is None and read.more:
                self.notes = (MORE,)
        self.doubt: torch.Tensor | None = None
        """What the dense network has said of the training samples, once it was asked."""
        if not self.size and not self.held:
            raise BrainsurgeonError("the data is empty (a generator can be read once only: give a list or a loader)")
        if not self.size or not self.held:
            raise BrainsurgeonError(
                f"too little data for a run in stages: at least {FEWEST} samples are needed, because some are held "
                "out to judge steps on"
            )

    def _bring(self, device: torch.device) -> None:
        """Move the training samples to a GPU where they are few: each is drawn many times."""
        lies = tensors_of(self._data)[0].device.type
        self._brought = device.type == "cuda" and lies == "cpu" and self._bytes() <= BROUGHT
        if self._brought:
            self._data = self._move(data_part(self._data, self._order))
            self._order = torch.arange(len(self._order))

    def _bytes(self) -> int:
        return len(self._order) * sum(tensor[:1].nbytes for tensor in tensors_of(self._data))

    @property
    def held(self) -> int:
        """The number of samples held out."""
        return sum(map(batch_size, self._held))

    def held_out(self) -> list[Batch]:
        """Return the samples that no gradient is ever taken on."""
        texts = is_tokens(self._held[0])
        return [self._move(batch) for batch in regroup(self._held, HELD_TEXTS if texts else HELD_BATCH)]

    def training(self) -> Batch | Batches:
        """Return the samples that are not held out, as data that can be read again."""
        if self._units is not None:
            return Batches(self._units)
        return self._data if self._brought else data_part(self._data, self._order)

    def everything(self) -> Iterator[Batch]:
        """Yield all samples, held out or not, where they lie."""
        yield from self._held
        if self._units is not None:
            yield from self._units
        else:
            yield from (data_part(self._data, chosen) for chosen in self._order.split(READ))

    def in_order(self, chosen: Callable[[int], range] = range) -> Iterator[Batch]:
        """Yield the training samples in the order of their weights; of so many batches those that are `chosen`."""
        if self._units is not None:
            yield from (self._move(self._units[number]) for number in chosen(len(self._units)))
            return
        parts = self._order.split(LOOKED)
        yield from (self._move(data_part(self._data, parts[number])) for number in chosen(len(parts)))

    def draw(self, count: int, stage: int, weights: torch.Tensor | None = None) -> Iterator[Batch]:
        """Yield `count` samples for a stage (as many as there are where there are fewer).

        Each is drawn at most once, unless weights (see `in_order`) say how often it is drawn beside the others. In a
        stream of batches they weigh the samples of a batch.
        """
        generator = generator_of(1_000_003 * (self.seed + 1) + stage)
        if self._units is None:
            order = self._order[drawn(len(self._order), generator, weights)][:count]
            for chosen in order.split(READ):
                yield self._move(data_part(self._data, chosen))
            return
        sizes = list(map(batch_size, self._units))
        parts = [None] * len(sizes) if weights is None else weights.split(sizes)
        for number in torch.randperm(len(self._units), generator=generator).tolist():
            if count <= 0:
                return
            batch = data_part(self._units[number], drawn(sizes[number], generator, parts[number])[:count])
            count -= batch_size(batch)
            yield self._move(batch)

    def draw_again(self, count: int, stage: int, weights: torch.Tensor | None = None) -> Iterator[Batch]:
        """Yield `count` samples, all of them in another order each time as many as there are have been drawn."""
        epoch = 0
        while count > 0:
            yield from self.draw(min(count, self.size), EPOCH * (epoch + 1) + stage, weights)
            count, epoch = count - self.size, epoch + 1

    def _move(self, batch: Batch) -> Batch:
        return moved(batch, self._device)


def data_part(data: Batch, chosen: torch.Tensor) -> Batch:
    """Return some samples of tensors, wherever these lie."""
    return map_tensors(lambda tensor: tensor[sent(chosen, tensor.device)], data)


def read_once(data: Any, seed: int, limit: int | None = None) -> Batches:
    """Return the batches of a loader or another iterable, as many as a run reads of it.

    Of a loader that gives a longer data set in order they are drawn from all of it: the first may be of one kind.
    """
    asked, limit = limit, limit or MOST_READ
    units, count = Batches(), 0
    generator = torch.Generator().manual_seed(seed)
    some = at_random(data, limit, generator)
    units.more = some is not data or (isinstance(data, Batches) and data.more)
    for batch in as_batches(some, generator):
        pulse()
        if count >= limit:  # a batch more than is asked for tells that there is one
            units.more = True
            break
        whole = batch_size(batch)  # what is no batch is refused here, in words
        if whole:
            units.append(cut(batch, slice(limit - count)))
        units.more |= whole > limit - count
        count += whole
        if count >= limit and (asked or units.more):
            break
    return units


def _hold_out(units: list[Batch], few: int) -> tuple[list[Batch], list[Batch]]:
    """Cut a part of every batch off: a loader may give its samples in order, of classes or of time."""
    total = sum(map(batch_size, units))
    wanted = held_out_of(total, few)
    held, rest, seen, taken = [], [], 0, 0
    for unit in units:
        seen += batch_size(unit)
        part = wanted * seen // total - taken
        taken += part
        held.append(cut(unit, slice(part)))
        rest.append(cut(unit, slice(part, None)))
    return list(filter(batch_size, held)), list(filter(batch_size, rest))

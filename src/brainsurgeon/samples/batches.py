"""Data in any of the usual shapes, read once, as batches of a known number of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler, Subset

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import pulse

Batch = Any
"""Tensors in nested dicts, lists and tuples, all with one sample per entry of their first dimension."""

READ = 64
"""Samples a batch, where the batches are ours to cut."""


def as_seed(seed: Any) -> int:
    """Return a seed as a plain whole number, or refuse it."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not -(2**63) <= int(seed) < 2**64:
        raise BrainsurgeonError(f"seed must be a whole number below 2^64, got {seed!r}")
    return int(seed)


def map_tensors(function: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    """Apply a function to every tensor of a batch, keeping its structure."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {key: map_tensors(function, value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, value) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map_tensors(function, value) for value in batch)
    raise BrainsurgeonError(
        f"a batch must hold tensors only (in tuples, lists or dicts), got a {type(batch).__name__}: "
        "drop it from the batch, or turn it into a tensor"
    )


def cut(batch: Batch, index: Any) -> Batch:
    """Index every tensor of a batch alike."""
    return map_tensors(lambda tensor: tensor[index], batch)


def tensors_of(batch: Batch) -> list[Tensor]:
    """Return every tensor of a batch, in order."""
    found: list[Tensor] = []
    map_tensors(lambda tensor: found.append(tensor) or tensor, batch)  # type: ignore[func-returns-value]
    return found


def is_tokens(batch: Batch) -> bool:
    """Say whether samples are whole numbers, such as the tokens of a text, of which a network makes far more."""
    return not tensors_of(batch)[0].is_floating_point()


def batch_size(batch: Batch) -> int:
    """Return the number of samples of a batch."""
    sizes = {tensor.shape[0] if tensor.dim() else None for tensor in tensors_of(batch)}
    if len(sizes) != 1 or None in sizes:
        single = ": single samples become batches by torch.utils.data.DataLoader(data, batch_size=64)"
        raise BrainsurgeonError(
            "all tensors of a batch must have one entry per sample in their first dimension, got sizes "
            f"{sizes}{single if None in sizes else ''}"
        )
    return sizes.pop() or 0


def concatenate(batches: list[Batch]) -> Batch:
    """Join batches of the same structure and shapes; those of dicts by key, in whatever order a batch has them."""
    head = batches[0]
    if isinstance(head, Tensor):
        return torch.cat(batches)
    if isinstance(head, Mapping):
        return {key: concatenate([batch[key] for batch in batches]) for key in head}
    parts = [concatenate([batch[k] for batch in batches]) for k in range(len(head))]
    return type(head)(*parts) if hasattr(head, "_fields") else type(head)(parts)


def moved(batch: Batch, device: torch.device) -> Batch:
    """Return a batch on a device, as constants that autograd takes: one made under `inference_mode` is copied.

    What a user's own network has made of the samples is no part of ours: no gradient goes back there.
    """

    def move(tensor: Tensor) -> Tensor:
        on_gpu = device.type == "cuda"  # a CPU would read what is not there yet
        tensor = tensor.detach().to(device, non_blocking=on_gpu)
        return tensor.clone() if tensor.is_inference() else tensor

    return map_tensors(move, batch)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; a GPU goes on with its work while it is copied there."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)  # from any other memory it would be waited for


def as_batches(data: Any, generator: torch.Generator) -> Iterator[Batch]:
    """Read `data` as batches: a loader, a data set, an iterable of batches, or all samples as tensors.

    Samples that lie in memory as tensors are drawn in random order; a loader or another iterable is read in
    the order that it gives. What a loader draws of torch's own random numbers depends on our generator alone.
    """
    if isinstance(data, DataLoader | IterableDataset):
        return _apart(data, int(torch.randint(2**62, (), generator=generator)))
    if isinstance(data, Dataset):
        return iter(DataLoader(data, READ, shuffle=True, generator=generator))
    if is_one_batch(data):
        order = torch.randperm(batch_size(data), generator=generator)
        return (cut(data, chosen) for chosen in order.split(READ))
    if isinstance(data, Iterable):
        return iter(data)
    raise BrainsurgeonError(
        "data must be (inputs, targets) as tensors, a dict of tensors, a data set, a DataLoader or an iterable of "
        f"batches, got {type(data).__name__}"
    )


def _apart(loader: Iterable[Batch], seed: int) -> Iterator[Batch]:
    """Read a loader with random numbers of a seed: shuffling and augmenting leave the caller's where they were."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # a GPU's is not forked, and stays as it is
        batches, state = iter(loader), torch.get_rng_state()
    while True:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            try:
                batch = next(batches)
            except StopIteration:
                return
            state = torch.get_rng_state()
        yield batch


def at_random(data: Any, count: int, generator: torch.Generator) -> Any:
    """Return a loader that gives so many samples drawn from all, where it would give them in order and has more."""
    plain = type(data) is DataLoader and isinstance(data.sampler, SequentialSampler)
    if not plain or data.batch_size is None or len(data.sampler) <= count:
        return data
    chosen = torch.randperm(len(data.sampler), generator=generator)[:count].tolist()
    some: Dataset[Any] = Subset(data.dataset, chosen)
    workers = {"num_workers": data.num_workers, "worker_init_fn": data.worker_init_fn}
    return DataLoader(some, data.batch_size, collate_fn=data.collate_fn, **workers)


class Batches(list[Any]):
    """Batches in memory; any other list of two tensors is taken for inputs and targets."""

    more = False
    """Whether there were more samples than were read."""


def is_one_batch(data: Any) -> bool:
    """Say whether data holds all samples as tensors, rather than batches of them."""
    if isinstance(data, Tensor | Mapping | tuple):
        return True
    if isinstance(data, Batches):
        return False
    return isinstance(data, list) and len(data) == 2 and all(isinstance(part, Tensor) for part in data)


class SampleStream:
    """The samples of a data source, each read once; those already seen can be sampled again."""

    def __init__(self, data: Any, generator: torch.Generator, device: torch.device, keep: int):
        self._batches = as_batches(data, generator)
        self._device = device
        self._keep = keep
        self._rest: Batch | None = None
        self._seen: list[Batch] = []
        self._num_seen = 0

    def take(self, count: int) -> Iterator[Batch]:
        """Yield batches that hold `count` samples together, fewer where the data ends."""
        for batch in self._fresh(count):
            if self._num_seen < self._keep:
                self._seen.append(batch)
            self._num_seen += batch_size(batch)
            yield batch

    def sample(self, count: int) -> list[Batch]:
        """Return `count` samples: fresh ones while there are any, then those already taken."""
        chosen = list(self._fresh(count))
        return chosen + list(first(self._seen, count - sum(map(batch_size, chosen))))

    def _fresh(self, count: int) -> Iterator[Batch]:
        while count > 0:
            pulse()
            batch = self._rest if self._rest is not None else next(self._batches, None)
            self._rest = None
            if batch is None:
                return
            batch = moved(batch, self._device)
            size = batch_size(batch)
            if not size:
                continue
            if size > count:
                self._rest = cut(batch, slice(count, None))
                batch = cut(batch, slice(count))
            count -= size
            yield batch


def first(batches: Iterable[Batch], count: int) -> Iterator[Batch]:
    """Yield the first `count` samples, fewer where there are fewer."""
    for batch in batches:
        if count <= 0:
            return
        batch = cut(batch, slice(count))
        count -= batch_size(batch)
        yield batch


def regroup(batches: Iterable[Batch], size: int) -> Iterator[Batch]:
    """Join and cut batches so that each holds `size` samples (fewer at the end, or where shapes change)."""
    pending: Batch | None = None
    for batch in batches:
        if pending is not None and form(pending) == form(batch):
            batch = concatenate([pending, batch])
        elif pending is not None:
            yield pending
        pending = None
        count = batch_size(batch)
        for start in range(0, count, size):
            piece = cut(batch, slice(start, start + size))
            if start + size <= count:
                yield piece
            else:
                pending = piece
    if pending is not None:
        yield pending


def form(batch: Batch) -> Any:
    """Return what two batches must have in common to be joined: keys, and of each sample shapes and types."""
    if isinstance(batch, Tensor):
        return batch.shape[1:], batch.dtype
    if isinstance(batch, Mapping):
        return {key: form(value) for key, value in batch.items()}
    return [form(value) for value in batch]


class Replay:
    """Batches of an iterator that can be read once, kept as they are read so that they can be read again."""

    def __init__(self, source: Iterator[Batch]):
        self._source = source
        self._read: list[Batch] = []

    def __iter__(self) -> Iterator[Batch]:
        number = 0
        while True:
            if number == len(self._read):
                try:
                    self._read.append(next(self._source))
                except StopIteration:
                    return
            yield self._read[number]
            number += 1


def replayable(data: Any) -> Any:
    """Return data that can be read several times: an iterator is kept as it is read, anything else is as it was."""
    return Replay(data) if isinstance(data, Iterator) else data

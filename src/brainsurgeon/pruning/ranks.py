"""Several ranks at one run: the same model and samples on each, one time for all, and means over shared batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from brainsurgeon.distributed import agreed, check_same, shard, world_size
from brainsurgeon.events.clock import Clock, TimeUp
from brainsurgeon.network.held import value_of
from brainsurgeon.network.streaming import mean_over_ranks
from brainsurgeon.samples.batches import Batch, batch_size, first, tensors_of


def own_share(batches: Sequence[Batch]) -> list[Batch]:
    """Return this rank's batches."""
    return [batches[number] for number in shard(len(batches))]


def check_alike(model: nn.Module, batches: Iterable[Batch]) -> None:
    """Refuse ranks that were given different models or samples."""
    if world_size() == 1:
        return
    values = (value_of(model, name) for name, _ in model.named_parameters())
    sizes = torch.stack([value.abs().sum(dtype=torch.float64).cpu() for value in values])
    check_same(sizes, "models", "load the same weights on each, with the same seed where they are drawn")
    sums = [
        (number + 1) * tensor.double().abs().sum().cpu()
        for number, batch in enumerate(batches)
        for tensor in tensors_of(batch)
    ]
    words = "give each all samples in the same order (a loader that shuffles needs a generator with a fixed seed)"
    check_same(torch.stack(sums), "samples", words)


@contextmanager
def one_time(clock: Clock) -> Iterator[None]:
    """Let no rank end the block by its own clock: another would wait for it. `check_time` ends it on all."""
    with clock.sharing(world_size() > 1):
        yield


def check_time(clock: Clock) -> None:
    """End the work on all ranks at once where the first one's time is up; alone, `pulse` does."""
    if clock.shared and clock.is_limited and agreed(clock.left <= 0):
        raise TimeUp


def agreed_part(some: Sequence[Batch], whole: Sequence[Batch]) -> list[Batch]:
    """Return as much of the whole as the first rank's part of it holds."""
    return list(some) if world_size() == 1 else list(first(whole, int(agreed(sum(map(batch_size, some))))))


def mean_of_shares(mean: Callable[[list[Batch]], float | None], batches: Sequence[Batch]) -> float | None:
    """Return a mean over the samples of all batches, of which each rank takes its share; the same on all of them."""
    if world_size() == 1:
        return mean(list(batches))
    own = own_share(batches)
    count = sum(map(batch_size, own))
    return mean_over_ranks((mean(own) or 0.0) * count if own else 0.0, count)

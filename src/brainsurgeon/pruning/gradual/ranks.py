"""A training step on several ranks: each takes a part of the batch, and all of them the step of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import broadcast, shard, sum_over_ranks, world_size
from brainsurgeon.pruning.gradual.student import Student
from brainsurgeon.samples.batches import Batch, batch_size, cut

SENT = 1 << 24
"""Numbers of the gradients that are sent at once: there is a copy of these, and not of all."""


@dataclass
class Shares:
    """How the samples of a batch are shared out; alone, a rank takes all of them and sends nothing.

    A batch with fewer than `least` samples for each rank is taken whole by every one of them.
    """

    least: int = 1
    weight: float = 1.0
    """What this rank's part of the last batch weighs in a mean over the ranks: Σ weight = 1."""

    @classmethod
    def of(cls, model: nn.Module) -> Shares:
        """Return how the batches of a model are shared out: a single sample has no variance for batch statistics."""
        return cls(2 if any(True for _ in statistics(model)) else 1)

    def part(self, batch: Batch) -> Batch:
        """Return this rank's part of a batch."""
        size, ranks = batch_size(batch), world_size()
        if ranks == 1 or size < self.least * ranks:
            self.weight = 1 / ranks
            return batch
        own = shard(size)
        self.weight = len(own) / size
        return cut(batch, slice(own.start, own.stop))

    def mean(self, numbers: Tensor) -> Tensor:
        """Return the mean over the samples of a batch from the ranks' means over their parts."""
        return numbers if world_size() == 1 else sum_over_ranks(numbers * self.weight)

    @torch.no_grad()
    def average(self, student: Student, loss: Tensor) -> Tensor:
        """Give every rank the gradients and the running statistics of the whole batch; return its loss.

        A parameter that no rank has a gradient of has none after it either.
        """
        if world_size() == 1:
            return loss
        values, running = list(student.values.values()), list(statistics(student.model))
        has = torch.tensor([value.grad is not None for value in values], dtype=torch.float64, device=loss.device)
        means = [number.reshape(-1).double() * self.weight for number in (loss, *running)]
        found = sum_over_ranks(torch.cat([has, *means])).split([len(has), *map(len, means)])
        for buffer, mean in zip(running, found[2:], strict=True):
            buffer.copy_(mean.view_as(buffer))
        used = [value for value, count in zip(values, found[0].tolist(), strict=True) if count]
        for some in _heaps(used):
            self._average_gradients(some)
        return found[1].reshape(()).to(loss.dtype)

    def _average_gradients(self, values: list[Tensor]) -> None:
        for value in values:
            if value.grad is None:
                value.grad = torch.zeros_like(value)
        given = [value.grad for value in values if value.grad is not None]
        sent = self.mean(torch.cat([gradient.reshape(-1) for gradient in given]))
        for gradient, mean in zip(given, sent.split([len(g.reshape(-1)) for g in given]), strict=True):
            gradient.copy_(mean.view(gradient.shape))  # in its own order in memory


def statistics(model: nn.Module) -> Iterator[Tensor]:
    """Yield the running statistics that training changes: real numbers that modules in training mode hold."""
    for module in model.modules():
        if module.training:
            yield from (buffer for buffer in module.buffers(recurse=False) if buffer.is_floating_point())


@torch.no_grad()
def send_round(student: Student) -> None:
    """Give every rank the first one's student, to the last bit: devices of other kinds may round otherwise."""
    if world_size() > 1:
        for tensor in student.stored().values():
            tensor.copy_(broadcast(tensor.clone(), 0))


def _heaps(values: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield tensors some at a time, no more numbers than are sent at once, or a single one."""
    heap: list[Tensor] = []
    for value in values:
        if heap and sum(tensor.numel() for tensor in heap) + value.numel() > SENT:
            yield heap
            heap = []
        heap.append(value)
    if heap:
        yield heap

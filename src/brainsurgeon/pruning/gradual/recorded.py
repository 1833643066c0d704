"""Training steps on a GPU whose kernels are recorded once and played again: a small network waits for its launches.

A CUDA graph repeats the same kernels on the same memory. So every batch is copied to one place, and what a step changes
stays in its place. A record is believed only when it gives what the step itself gives on another batch; a model whose
steps cannot be recorded (it asks the device something on the way) is trained step by step, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from brainsurgeon.pruning.gradual.step import Step
from brainsurgeon.samples.batches import Batch, map_tensors, tensors_of

WARM = 3
"""Steps before one is recorded: the optimizer makes its state, and libraries choose and load their kernels."""
APART = 0.05
"""How far the change of a played step may be from that of the step itself, relative to it."""


def recorded(step: Step, wanted: bool = True) -> Callable[[Batch], Tensor]:
    """Return a step that records its kernels where there is a GPU, else the step as it is."""
    return Recorder(step) if wanted and next(iter(step.student.values.values())).is_cuda else step


class Recorder:
    """Steps that are taken as they are at first, then recorded, compared, and played.

    There are two records, one for the steps that listen to the dense network and one for those that do not.
    """

    def __init__(self, step: Step):
        self.step = step
        self.works = True
        self._taken: dict[bool, int] = {}
        self._records: dict[bool, tuple[torch.cuda.CUDAGraph, Batch, Tensor]] = {}
        self._stream = torch.cuda.Stream(next(iter(step.student.values.values())).device)

    def __call__(self, batch: Batch) -> Tensor:
        """Take a step; return the loss before it."""
        kind = self.step.trust.listens
        if kind in self._records and _form(self._records[kind][1]) == _form(batch):
            loss = self._play(kind, batch)
        elif not self.works or kind in self._records or self._taken.get(kind, 0) < WARM:
            loss = self._apart(batch)
        else:
            loss = self._record(kind, batch)
        self._taken[kind] = self._taken.get(kind, 0) + 1
        self.step.trust.count()
        return loss

    def _apart(self, batch: Batch) -> Tensor:
        """Take a step on the stream that is recorded, so that nothing of autograd belongs to another one."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            loss = self.step.kernels(batch)
        current.wait_stream(self._stream)
        return loss

    def _play(self, kind: bool, batch: Batch) -> Tensor:
        graph, place, loss = self._records[kind]
        for own, given in zip(tensors_of(place), tensors_of(batch), strict=True):
            own.copy_(given)
        graph.replay()
        return loss.clone()

    def _record(self, kind: bool, batch: Batch) -> Tensor:
        """Record a step, and compare it with the step itself on this batch; the latter is the one that counts."""
        place = map_tensors(torch.clone, batch)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                loss = self.step.kernels(place)
        except RuntimeError:
            self._give_up()
            return self._apart(batch)
        before = {name: tensor.clone() for name, tensor in self.step.state().items()}
        self._records[kind] = graph, place, loss
        played_loss = self._play(kind, batch)
        played = {name: tensor.clone() for name, tensor in self.step.student.values.items()}
        for name, tensor in self.step.state().items():
            tensor.detach().copy_(before[name])
        found = self._apart(batch)
        if not self._agrees(before, played, (played_loss, found)):
            self._give_up()
        return found

    def _agrees(self, before: dict[str, Tensor], played: dict[str, Tensor], losses: tuple[Tensor, Tensor]) -> bool:
        change = apart = torch.zeros((), device=losses[0].device)
        for name, value in self.step.student.values.items():
            change = change + (value.detach() - before[f"value/{name}"]).square().sum()
            apart = apart + (value.detach() - played[name]).square().sum()
        close = (losses[0] - losses[1]).abs() <= APART * losses[1].abs() + 1e-6
        return bool(close & (apart <= APART**2 * change))

    def _give_up(self) -> None:
        """Forget what was recorded, and the gradients that lie in its memory."""
        self.works = False
        self._records.clear()
        torch.cuda.synchronize()
        for parameter in (*self.step.student.model.parameters(), *self.step.student.values.values()):
            parameter.grad = None


def _form(batch: Batch) -> list[tuple[torch.Size, torch.dtype]]:
    return [(tensor.shape, tensor.dtype) for tensor in tensors_of(batch)]

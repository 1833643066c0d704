"""Training steps on a GPU whose kernels are recorded once and played again: a small network waits for its launches.

A CUDA graph repeats the same kernels on the same memory. So every batch is copied to one place, and what a step changes
stays in its place. A record is believed only when it changes everything as the step itself does on the next two
batches: after one, a model that does something else at every second call would be believed. A model whose steps cannot
be recorded (it asks the device something on the way, or puts a new tensor in the place of an old one) is trained step
by step, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.pruning.gradual.step import Step
from brainsurgeon.samples.batches import Batch, batch_size, form, map_tensors, tensors_of

WARM = 3
"""Steps before one is recorded: the optimizer makes its state, and libraries choose and load their kernels."""
APART = 0.05
"""How far the change of a played step may be from that of the step itself, relative to it."""
COMPARED = 2
"""Steps that a record is compared with, one after the other."""


def recorded(step: Step, wanted: bool = True) -> Callable[[Batch], Tensor]:
    """Return a step that records its kernels where there is a GPU, else the step as it is."""
    return Recorder(step) if wanted and next(iter(step.student.values.values())).is_cuda else step


@dataclass
class Record:
    """The kernels of a step, where they read the batch and write the loss, and how many steps they agreed with."""

    graph: Any
    place: Batch
    loss: Tensor
    agreed: int = 0

    @property
    def believed(self) -> bool:
        """Say whether it is played."""
        return self.agreed >= COMPARED


class Recorder:
    """Steps that are taken as they are at first, then recorded, compared, and played.

    There are two records, one for the steps that listen to the dense network and one for those that do not.
    """

    def __init__(self, step: Step):
        self.step = step
        self.works = True
        self._taken: dict[bool, int] = {}
        self._records: dict[bool, Record] = {}
        self._device = next(iter(step.student.values.values())).device
        self._stream = torch.cuda.Stream(self._device)

    def __call__(self, batch: Batch) -> Tensor:
        """Take a step; return the loss before it."""
        kind = self.step.trust.listens
        with torch.cuda.device(self._device):
            loss = self._take(kind, batch)
        self._taken[kind] = self._taken.get(kind, 0) + 1
        self.step.trust.count()
        return loss

    def _take(self, kind: bool, batch: Batch) -> Tensor:
        record = self._records.get(kind)
        if record is None and self.works and self._taken.get(kind, 0) >= WARM:
            self._record(kind, batch)
            return self._apart(batch)
        if record is None or not _alike(record.place, batch):
            return self._apart(batch)
        return self._play(record, batch) if record.believed else self._compare(record, batch)

    def _apart(self, batch: Batch) -> Tensor:
        """Take a step on the stream that is recorded, so that nothing of autograd belongs to another one."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            loss = self.step.kernels(batch)
        current.wait_stream(self._stream)
        return loss

    def _play(self, record: Record, batch: Batch) -> Tensor:
        for own, given in zip(tensors_of(record.place), tensors_of(batch), strict=True):
            own.copy_(given)
        record.graph.replay()
        return record.loss.clone()

    def _record(self, kind: bool, batch: Batch) -> None:
        """Record a step, which is not taken by that."""
        held, state = held_by(self.step.student.model), self.step.state()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        random = generator.clone_state()
        found = self._captured(map_tensors(torch.clone, batch))
        if found is None:  # a capture that breaks off would leave the generator in its midst
            generator.graphsafe_set_state(random)
        stayed = in_place(state, self.step.state()) and in_place(held, held_by(self.step.student.model))
        if found is None or not stayed:
            self._give_up(held, state)
        else:
            self._records[kind] = found

    def _captured(self, place: Batch) -> Record | None:
        """Return the record of a step on the batch in a place; None where the device refuses."""
        graph = torch.cuda.CUDAGraph()
        others = [record.graph.pool() for record in self._records.values()]  # they are never played at once
        try:
            with torch.cuda.graph(graph, others[0] if others else None, self._stream, "thread_local"):
                loss = self.step.kernels(place)
        except RuntimeError:
            return None
        return Record(graph, place, loss)

    def _compare(self, record: Record, batch: Batch) -> Tensor:
        """Play a step, go back, and take it: the latter is the one that counts."""
        before = {name: tensor.clone() for name, tensor in self.step.state().items()}
        loss = self._play(record, batch)
        played = {name: tensor.clone() for name, tensor in self.step.state().items()}
        for name, tensor in self.step.state().items():
            tensor.copy_(before[name])
        found = self._apart(batch)
        after = self.step.state() | {"loss": found}
        if agree(before | {"loss": torch.zeros_like(found)}, played | {"loss": loss}, after):
            record.agreed += 1
        else:
            self._give_up()
        return found

    def _give_up(self, held: Held | None = None, state: dict[str, Tensor] | None = None) -> None:
        """Forget what was recorded; put back what was there, and leave no gradient in the record's memory."""
        self.works = False
        self._records.clear()
        torch.cuda.synchronize(self._device)
        for parameter in (*self.step.student.model.parameters(), *self.step.student.values.values()):
            parameter.grad = None
        if held is not None and state is not None:
            put_back(self.step.student.model, held)
            self.step.forget(state)


Held = dict[tuple[nn.Module, str], Tensor]


def held_by(model: nn.Module) -> Held:
    """Return the buffers of a model, and tensors that its modules hold as plain attributes."""
    found: Held = {}
    for module in model.modules():
        tensors = {**vars(module), **module._buffers}
        found |= {(module, name): tensor for name, tensor in tensors.items() if isinstance(tensor, Tensor)}
    return found


def put_back(model: nn.Module, held: Held) -> None:
    """Give a model's modules the tensors they had, and no others."""
    for module, name in held_by(model).keys() - held.keys():
        delattr(module, name)
    for (module, name), tensor in held.items():
        (module._buffers if name in module._buffers else vars(module))[name] = tensor


def in_place(before: Mapping[Any, Tensor], after: Mapping[Any, Tensor]) -> bool:
    """Say whether the same tensors lie where they lay."""
    return before.keys() == after.keys() and all(before[name].data_ptr() == after[name].data_ptr() for name in before)


def agree(before: dict[str, Tensor], played: dict[str, Tensor], after: dict[str, Tensor]) -> bool:
    """Say whether two steps from the same state have changed all tensors alike."""
    real = [name for name, tensor in after.items() if tensor.is_floating_point()]
    whole = [name for name in after if name not in real]
    start, one, other = ([tensors[name].float() for name in real] for tensors in (before, played, after))
    change, apart, size = (
        torch.stack(torch._foreach_norm(tensors))
        for tensors in (torch._foreach_sub(other, start), torch._foreach_sub(other, one), other)
    )
    alike = [(apart <= APART * change + 1e-6 * size).all(), *((after[n] == played[n]).all() for n in whole)]
    return bool(torch.stack(alike).all())


def _alike(one: Batch, other: Batch) -> bool:
    return batch_size(one) == batch_size(other) and form(one) == form(other)

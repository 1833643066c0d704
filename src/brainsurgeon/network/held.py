"""Tensors that lie elsewhere: in a file, in an offload folder, in shards on several devices.

The module holds a placeholder of their shape and type. For as long as a part of the model is at work, its values are
fetched and stand in the placeholder's place; what was changed is put back afterwards. So no more of the model than the
part at work is ever in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

KEY = "_held_elsewhere"
"""Where a model keeps the holders of its placeholders."""


class Holder(Protocol):
    """Where one tensor lies while it is not at work."""

    @property
    def device(self) -> torch.device:
        """Where it is worked on unless someone says otherwise."""

    @property
    def place(self) -> str:
        """Where it lies, in words."""

    def fetch(self) -> Tensor:
        """Return all values, in memory of their own."""

    def put(self, values: Tensor) -> None:
        """Keep new values in place of the old."""


Held = dict[Tensor, Holder]


def held_in(model: nn.Module) -> Held:
    """Return the holders of a model's placeholders; empty where all its tensors are there."""
    found: Held = model.__dict__.get(KEY, {})
    return found


def hold(model: nn.Module, held: Held) -> None:
    """Tell a model who holds its tensors; with none, that all are there."""
    model.__dict__.pop(KEY, None)
    if held:
        model.__dict__[KEY] = held


@dataclass(frozen=True)
class _Slot:
    """A place in a module where a tensor is found."""

    table: dict[str, Any]
    name: str
    tensor: Tensor


def _slots(module: nn.Module, recurse: bool = True, skipped: tuple[str, ...] = ()) -> list[_Slot]:
    found = []
    for path, owner in module.named_modules() if recurse else [("", module)]:
        if skipped and f"{path}.".startswith(skipped):
            continue
        for table in (owner._parameters, owner._buffers):
            found += [_Slot(table, name, tensor) for name, tensor in table.items() if tensor is not None]
    return found


@contextmanager
def lent(
    model: nn.Module,
    module: nn.Module,
    device: torch.device,
    without: tuple[str, ...] = (),
    recurse: bool = True,
) -> Iterator[None]:
    """Put the tensors of a model's module on the device for a while; they go back where they were, to the same memory.

    Those of its submodules that are named in `without` stay; so do those of all submodules without `recurse`.
    """
    held = held_in(model)
    slots = _slots(module, recurse, tuple(f"{name}." for name in without))
    homes = {slot.tensor: slot.tensor.data for slot in slots if slot.tensor not in held}
    brought: dict[Tensor, tuple[Tensor, int]] = {}
    try:
        for tensor in homes:
            tensor.data = tensor.data.to(device)
        for slot in slots:
            if slot.tensor in held:
                if slot.tensor not in brought:
                    values = _in_place_of(slot.tensor, held[slot.tensor].fetch().to(device))
                    brought[slot.tensor] = values, values._version
                slot.table[slot.name] = brought[slot.tensor][0]
        yield
    finally:
        for tensor, home in homes.items():
            _return(tensor, home)
        for slot in slots:
            if slot.tensor in held:
                slot.table[slot.name] = slot.tensor
        for tensor, (values, version) in brought.items():
            if values._version != version:
                held[tensor].put(values.detach())


def _return(tensor: Tensor, home: Tensor) -> None:
    """Write the values of a tensor into the memory that it had, which others may share."""
    if tensor.device != home.device or tensor.data_ptr() != home.data_ptr():
        with torch.inference_mode() if home.is_inference() else torch.no_grad():
            home.copy_(tensor.data)
        tensor.data = home


def _in_place_of(placeholder: Tensor, values: Tensor) -> Tensor:
    if isinstance(placeholder, nn.Parameter):
        return nn.Parameter(values, requires_grad=placeholder.requires_grad)
    return values


@contextmanager
def passing(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Let forward passes of a whole model run with one unit of it on the device at a time: a block, or a single layer.

    A model whose tensors are all on the device is left alone.
    """
    held = held_in(model)
    if not held and all(slot.tensor.device == device for slot in _slots(model)):
        yield
        return
    lendings: list[AbstractContextManager[None]] = []

    def enter(recurse: bool, module: nn.Module, *_: Any) -> None:
        lendings.append(lent(model, module, device, recurse=recurse))
        lendings[-1].__enter__()

    def leave(*_: Any) -> None:
        lendings.pop().__exit__(None, None, None)

    hooks = []
    try:
        for module, recurse in _units(model):
            hooks.append(module.register_forward_pre_hook(partial(enter, recurse), prepend=True))
            hooks.append(module.register_forward_hook(leave, always_call=True))
        yield
    finally:
        for hook in hooks:
            hook.remove()
        while lendings:  # a pass that failed half way
            leave()


def _units(module: nn.Module) -> Iterator[tuple[nn.Module, bool]]:
    """Yield what is lent at once: the entries of a list of modules whole, of all else a module's own tensors."""
    if _slots(module, recurse=False):
        yield module, False
    listed = isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential)
    for child in module.children():
        if listed and not isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield child, True
        else:
            yield from _units(child)


def value_of(model: nn.Module, name: str) -> Tensor:
    """Return the values of a parameter, fetched where they lie elsewhere."""
    parameter = model.get_parameter(name)
    holder = held_in(model).get(parameter)
    return parameter.detach() if holder is None else holder.fetch()


@contextmanager
def writing(model: nn.Module, name: str) -> Iterator[Tensor]:
    """Give the values of a parameter to be written into; those that lie elsewhere are put back there."""
    values = value_of(model, name)
    with torch.inference_mode() if values.is_inference() else torch.no_grad():
        yield values
    if holder := held_in(model).get(model.get_parameter(name)):
        holder.put(values)


def largest_unit(model: nn.Module, everything: bool = False) -> int:
    """Return the bytes of the largest part of a model that is brought to a device at once.

    What is there already does not count: with `everything` nothing is, else all that is not held elsewhere.
    """
    held, outside = held_in(model), set[Tensor]()
    parts = [outside]  # head and tail of the chain are brought together, and what is tied in them once
    for module, recurse in _units(model):
        found = {slot.tensor for slot in _slots(module, recurse) if everything or slot.tensor in held}
        if recurse:
            parts.append(found)
        else:
            outside |= found
    return max(sum(tensor.nbytes for tensor in part) for part in parts)

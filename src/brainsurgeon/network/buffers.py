"""Buffers that can be written to, that go from model to model, and that stay as they were.

What lasts of a network is in its `state_dict`. Other buffers are caches, which belong to what their module has noted of
them as plain attributes: they never go to another model, and are put back together with the notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

OWN = frozenset(vars(nn.Module()))
"""What torch itself keeps in every module: hooks, parameters, the mode."""


def give_memory(model: nn.Module) -> nn.Module:
    """Give each buffer of a copy memory of its own: many numbers of one that is expanded lie in the same place."""
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and _is_expanded(buffer):
                module._buffers[name] = buffer.contiguous()
    return model


def lasting(model: nn.Module) -> dict[str, Tensor]:
    """Return the buffers that are part of a model's state, by name; one that has several names has all of them."""
    found: dict[str, Tensor] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            if name not in module._non_persistent_buffers_set:
                found[f"{path}.{name}" if path else name] = buffer
    return found


@torch.no_grad()
def set_buffers(model: nn.Module, values: Mapping[str, Tensor]) -> list[str]:
    """Give a model's lasting buffers their values; return the names of those that are new in it, or of another size."""
    own, changed = lasting(model), []
    home = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    for name, value in values.items():
        place = own.get(name)
        if place is not None and place.shape == value.shape and not _is_expanded(place):
            place.copy_(value)
            continue
        path, _, last = name.rpartition(".")
        module = model.get_submodule(path)
        if last not in module._buffers and hasattr(module, last):
            delattr(module, last)  # a plain attribute stands where it is to be
        module.register_buffer(last, value.to(home if place is None else place.device, copy=True))
        changed.append(name)
    return changed


def give_buffers(model: nn.Module, other: nn.Module) -> None:
    """Give another model of the same kind a model's lasting buffers, also those that a forward pass has made or grown.

    What the module has noted of the latter goes with them.
    """
    for name in set_buffers(other, lasting(model)):
        path = name.rpartition(".")[0]
        source, target = vars(model.get_submodule(path)), vars(other.get_submodule(path))
        target.update({key: value for key, value in source.items() if key not in OWN and _is_plain(value)})


def become(model: nn.Module, other: nn.Module) -> None:
    """Let a model have all values of another of the same kind."""
    give_buffers(other, model)
    model.load_state_dict(other.state_dict())


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Leave buffers as they were at the end: a forward pass may count, follow a mean, or let a cache grow, in any mode.

    Each module whose buffers have changed has all of them put back, and its plain attributes: what it has noted of a
    cache must not outlive the cache.
    """
    before = [_Held.by(module) for module in model.modules() if not _is_to_come(module)]
    try:
        yield
    finally:
        for held in before:
            held.put_back()


@dataclass(frozen=True)
class _Held:
    """What a module had: its buffers, copies of those whose values can be compared, and plain attributes."""

    module: nn.Module
    buffers: dict[str, Tensor | None]
    values: dict[str, Tensor]
    temporary: set[str]
    notes: dict[str, Any]

    @staticmethod
    def by(module: nn.Module) -> _Held:
        buffers = dict(module._buffers.items())
        values = {n: b.detach().clone() for n, b in buffers.items() if b is not None and _is_comparable(b)}
        notes = {name: value for name, value in vars(module).items() if name not in OWN}
        return _Held(module, buffers, values, set(module._non_persistent_buffers_set), notes)

    def put_back(self) -> None:
        """Give the module what it had."""
        module, now = self.module, dict(self.module._buffers.items())
        changed = now.keys() != self.buffers.keys() or not all(self._stays(name, now[name]) for name in now)
        for name, value in self.values.items():
            own = self.buffers[name]
            if own is not None and not _is_expanded(own) and not same_numbers(own, value):
                with torch.inference_mode(own.is_inference()), torch.no_grad():
                    own.copy_(value)
        if isinstance(module, torch.jit.ScriptModule):
            return
        for name, own in self.buffers.items():
            there = now.get(name)
            if changed or (own is not None and there is not None and own.device == there.device):
                module._buffers[name] = own
        if changed:
            for name in now.keys() - self.buffers.keys():
                del module._buffers[name]
            module._non_persistent_buffers_set.clear()
            module._non_persistent_buffers_set.update(self.temporary)
            for name in vars(module).keys() - self.notes.keys() - OWN:
                del vars(module)[name]
            vars(module).update(self.notes)

    def _stays(self, name: str, now: Tensor | None) -> bool:
        own = self.buffers[name]
        if own is None or now is None:
            return own is now
        if name not in self.values:
            return now is own or now.is_meta or own.is_meta  # an offloaded buffer comes and goes
        moved = now.device != own.device  # which another has to bring back
        return moved or same_numbers(now, self.values[name])


def _is_plain(note: Any) -> bool:
    """Say whether a note means the same in another model."""
    return all(map(_is_plain, note)) if isinstance(note, tuple) else isinstance(note, bool | int | float | str | None)


def _is_to_come(module: nn.Module) -> bool:
    """Say whether a lazy module finds its sizes in its first pass, which stays."""
    return any(each is not None and is_lazy(each) for each in (*module._parameters.values(), *module._buffers.values()))


def _is_comparable(buffer: Tensor) -> bool:
    return buffer.layout == torch.strided and not buffer.is_meta


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Say whether two tensors have the same numbers, those that are no number in the same places."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if torch.equal(one, other):
        return True
    real = one.is_floating_point() or one.is_complex()
    return real and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _is_expanded(buffer: Tensor) -> bool:
    strided = buffer.layout == torch.strided
    return strided and any(n > 1 and step == 0 for n, step in zip(buffer.shape, buffer.stride(), strict=True))

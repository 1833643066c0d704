"""Buffers that can be written to, and buffers that stay as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def give_memory(model: nn.Module) -> nn.Module:
    """Give each buffer of a copy memory of its own: many numbers of one that is expanded lie in the same place."""
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and _is_expanded(buffer):
                module._buffers[name] = buffer.contiguous()
    return model


@torch.no_grad()
def give_buffers(model: nn.Module, other: nn.Module) -> None:
    """Give another model of the same kind a model's buffers, also those that a forward pass has made or made larger."""
    own = dict(other.named_buffers(remove_duplicate=False))
    for name, buffer in model.named_buffers(remove_duplicate=False):
        place = own.get(name)
        if place is not None and place.shape == buffer.shape and not _is_expanded(place):
            place.copy_(buffer)
            continue
        path, _, last = name.rpartition(".")
        source, target = model.get_submodule(path), other.get_submodule(path)
        if last not in target._buffers and hasattr(target, last):
            delattr(target, last)  # a plain attribute stands where it is to be
        target.register_buffer(last, buffer.clone(), persistent=last not in source._non_persistent_buffers_set)


def become(model: nn.Module, other: nn.Module) -> None:
    """Let a model have all values of another of the same kind."""
    give_buffers(other, model)
    model.load_state_dict(other.state_dict())


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Give buffers their values back at the end: a forward pass may count, or follow a mean, in any mode.

    One that is new, or of another size, stays: a cache that has grown goes with what the module has noted of it.
    """
    before = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False)
        if buffer.layout == torch.strided and not buffer.is_meta
    ]
    try:
        yield
    finally:
        for module, name, buffer, value in before:
            now = getattr(module, name, None)
            if not isinstance(now, Tensor) or (now.shape, now.dtype) != (value.shape, value.dtype):
                continue
            if not torch.equal(buffer, value):
                with torch.inference_mode(buffer.is_inference()), torch.no_grad():
                    buffer.copy_(value)
            if now is not buffer and not isinstance(module, torch.jit.ScriptModule):
                module._buffers[name] = buffer


def _is_expanded(buffer: Tensor) -> bool:
    strided = buffer.layout == torch.strided
    return strided and any(n > 1 and step == 0 for n, step in zip(buffer.shape, buffer.stride(), strict=True))

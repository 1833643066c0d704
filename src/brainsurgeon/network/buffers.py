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
    """Give another model of the same kind a model's buffers, those too that a forward pass has made."""
    own = dict(other.named_buffers())
    for name, buffer in model.named_buffers():
        if name in own:
            own[name].copy_(buffer)
        else:
            part, _, last = name.rpartition(".")
            setattr(other.get_submodule(part), last, buffer.clone())


def become(model: nn.Module, other: nn.Module) -> None:
    """Let a model have all values of another of the same kind."""
    give_buffers(other, model)
    model.load_state_dict(other.state_dict())


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Give every buffer its value back at the end: a forward pass may count, or follow a mean, in any mode."""
    tables = {module: dict(module._buffers) for module in model.modules()}
    found = {id(buffer): buffer for table in tables.values() for buffer in table.values() if buffer is not None}
    values = [(buffer, buffer.clone()) for buffer in found.values() if not buffer.is_meta]
    try:
        yield
    finally:
        for buffer, value in values:
            if not torch.equal(buffer, value):
                with torch.inference_mode(buffer.is_inference()), torch.no_grad():
                    buffer.copy_(value)
        for module, table in tables.items():
            module._buffers.clear()
            module._buffers.update(table)


def _is_expanded(buffer: Tensor) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(buffer.shape, buffer.stride(), strict=True))

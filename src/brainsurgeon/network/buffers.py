"""Buffers that can be written to."""

from __future__ import annotations

from torch import Tensor, nn


def give_memory(model: nn.Module) -> nn.Module:
    """Give each buffer of a copy memory of its own: many numbers of one that is expanded lie in the same place."""
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and _is_expanded(buffer):
                module._buffers[name] = buffer.contiguous()
    return model


def _is_expanded(buffer: Tensor) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(buffer.shape, buffer.stride(), strict=True))

"""What a pass through a network keeps for the way back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.samples.batches import Batch


@contextmanager
def saved(module: nn.Module) -> Iterator[dict[int, int]]:
    """Give the bytes that a pass keeps for the way back, beside the module's weights, by the place of each storage."""
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters() if not parameter.is_meta}
    seen: dict[int, int] = {}
    alive: list[Tensor] = []  # while one lives no other has its place

    def note(tensor: Tensor) -> Tensor:  # without its graph: one that holds its own outputs never goes
        alive.append(tensor.detach())
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            # What is kept of a batch may be a part of all the data.
            seen[storage.data_ptr()] = max(seen.get(storage.data_ptr(), 0), min(tensor.nbytes, storage.nbytes()))
        return alive[-1]

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept):
        yield seen


def kept_by(batch_loss: BatchLoss, batch: Batch) -> int:
    """Return the bytes that a forward pass of a batch keeps for the way back; what is frozen is asked for it too."""
    first = next(p for p in batch_loss.model.parameters() if p.is_floating_point() and not p.is_inference())
    asked = first.requires_grad
    try:
        first.requires_grad_()
        with saved(batch_loss.model) as seen:
            loss = batch_loss(batch)
        del loss
    finally:
        first.requires_grad_(asked)
    return sum(seen.values())

"""Images as convolutions on a CPU like them: with their channels last in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.samples.batches import Batch, cut, map_tensors, tensors_of


def choose_layout(batch_loss: BatchLoss, probe: Batch) -> Callable[[Batch], Batch]:
    """Return what puts a batch's images with their channels last, which saves convolutions a quarter of their time.

    Batches stay as they are without images or on a GPU, where little is to be gained, and with a model that asks for
    the order in memory (by `view`).
    """
    if not any(map(_is_image, tensors_of(probe))):
        return _unchanged
    probe = cut(probe, slice(1))
    try:
        with torch.no_grad():
            same = torch.allclose(batch_loss(probe), batch_loss(_channels_last(probe)), rtol=1e-3, atol=1e-5)
    except RuntimeError:
        return _unchanged
    return _channels_last if same else _unchanged


def _unchanged(batch: Batch) -> Batch:
    return batch


def _is_image(tensor: Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_floating_point() and tensor.device.type == "cpu" and tensor.shape[1] > 1


def _channels_last(batch: Batch) -> Batch:
    return map_tensors(lambda t: t.contiguous(memory_format=torch.channels_last) if _is_image(t) else t, batch)

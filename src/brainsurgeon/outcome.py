"""The last step of every run: the new weights written into the model, and counted there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .errors import BrainsurgeonError
from .result import LayerRecord, PruningResult
from .weights import PrunableWeights


def finish(
    model: nn.Module, weights: PrunableWeights, pruned: Tensor, new: Tensor, total: int, **record: Any
) -> PruningResult:
    """Write the weights into the model and return the result; exactly `total` of them are zero by P."""
    if not bool(torch.isfinite(new).all()):
        raise BrainsurgeonError("the update gave weights that are not finite: raise the damping")
    weights.assign(model, new)
    # The masks come back where the model is, wherever the work was done.
    homes = {name: model.get_parameter(name).device for name in weights.names}
    masks = {name: mask.to(homes[name], copy=True) for name, mask in weights.unflatten(pruned).items()}
    verify(model, masks, total)
    layers = tuple(
        LayerRecord(layer.name, layer.shape, int(pruned[layer.columns].sum()), layer.size) for layer in weights.layers
    )
    return PruningResult(model=model, masks=masks, layers=layers, **record)


def verify(model: nn.Module, masks: dict[str, Tensor], total: int) -> None:
    """Count again, in the model itself: exactly ⌈rN⌉ weights are gone, and each of them is exactly zero."""
    found, zeros = 0, 0
    for name, mask in masks.items():
        parameter = model.get_parameter(name).detach()
        found += int(mask.sum())
        zeros += int((parameter[mask] == 0).sum())
    if not found == zeros == total:
        raise AssertionError(f"{found} weights were pruned and {zeros} are zero where {total} should be: a bug")

"""The last step of every run: the new weights written into the model, counted there, and the loss measured on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import pulse
from brainsurgeon.network.held import held_in, value_of
from brainsurgeon.network.loss import BatchLoss, LossLike
from brainsurgeon.network.modes import evaluated
from brainsurgeon.network.packed import PackedMasks
from brainsurgeon.network.weights import PrunableWeights, write
from brainsurgeon.pruning.outcome import Outcome
from brainsurgeon.pruning.result import LayerRecord, PruningResult
from brainsurgeon.samples.batches import Batch, batch_size


def finish(
    model: nn.Module,
    weights: PrunableWeights,
    outcome: Outcome,
    total: int,
    loss: LossLike,
    device: torch.device,
    **record: Any,
) -> PruningResult:
    """Write the weights into the model and return the result; exactly `total` of them are zero by P."""
    for name, values in (outcome.values or {}).items():
        if not bool(torch.isfinite(values).all()):
            raise BrainsurgeonError(f"the update gave weights of {name!r} that are not finite: raise the damping")
    write(model, outcome.values or {})
    masks = _brought_home(model, weights, outcome.masks)
    verify(model, masks, total)
    if outcome.measure is not None:
        loss_after: float | None = outcome.measure(model)
    else:
        loss_after = measured_loss(model, loss, outcome.sample, device)
    return PruningResult(
        model=model,
        masks=masks,
        layers=tuple(LayerRecord(la.name, la.shape, int(masks[la.name].sum()), la.size) for la in weights.layers),
        predicted_change=outcome.predicted_change,
        loss_before=outcome.loss_before,
        loss_after=loss_after,
        examined=outcome.examined,
        **record,
    )


def _brought_home(model: nn.Module, weights: PrunableWeights, masks: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return copies of the masks where the model is, wherever the work was done; of one held elsewhere, as bits."""
    if not held_in(model):
        return {name: masks[name].to(model.get_parameter(name).device, copy=True) for name in weights.names}
    packed = PackedMasks()
    packed.update((name, masks[name]) for name in weights.names)
    return packed


def verify(model: nn.Module, masks: Mapping[str, Tensor], total: int) -> None:
    """Count again, in the model itself: exactly ⌈rN⌉ weights are gone, and each of them is exactly zero."""
    found, zeros = 0, 0
    for name, mask in masks.items():
        found += int(mask.sum())
        zeros += int((value_of(model, name)[mask] == 0).sum())
    if not found == zeros == total:
        raise AssertionError(f"{found} weights were pruned and {zeros} are zero where {total} should be: a bug")


def measured_loss(model: nn.Module, loss: LossLike, sample: Sequence[Batch], device: torch.device) -> float | None:
    """Return the mean loss on the sample of the very model that is given back; None where there is no sample."""
    if not sample:
        return None
    total, count = 0.0, 0
    with evaluated(model, device), torch.no_grad():
        batch_loss = BatchLoss(model, loss)
        for batch in sample:
            pulse()
            total += float(batch_loss(batch)) * batch_size(batch)
            count += batch_size(batch)
    mean = total / count
    return mean if math.isfinite(mean) else math.inf

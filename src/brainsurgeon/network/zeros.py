"""The zeros of a pruned model: found, set, and counted again."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.weights import find_weights


def zero_masks(model: nn.Module) -> dict[str, Tensor]:
    """Return, for every prunable weight that holds any, a mask of its exact zeros (True where it is zero)."""
    masks = {name: (model.get_parameter(name) == 0).detach() for name in find_weights(model).names}
    found = {name: mask for name, mask in masks.items() if bool(mask.any())}
    if not found:
        raise BrainsurgeonError(
            "the model has no exact zeros among its prunable weights: prune it (brainsurgeon.prune), or give masks"
        )
    return found


def check_masks(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Refuse masks that are not boolean tensors of the shapes of the model's parameters."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    if not masks:
        raise BrainsurgeonError("there are no masks: expected {parameter name: boolean tensor, True where removed}")
    for name, mask in masks.items():
        if name not in parameters:
            raise BrainsurgeonError(f"the masks name {name!r}, which is no parameter of {type(model).__name__}")
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != parameters[name].shape:
            got = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            raise BrainsurgeonError(
                f"the mask of {name!r} must be boolean of shape {tuple(parameters[name].shape)}, got {got}"
            )


@torch.no_grad()
def set_zeros(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Make every masked weight exactly zero."""
    check_masks(model, masks)
    for name, mask in masks.items():
        parameter = model.get_parameter(name)
        parameter.masked_fill_(mask.to(parameter.device), 0)


def count_zeros(model: nn.Module, masks: Mapping[str, Tensor]) -> int:
    """Count the masked weights and verify that each of them is exactly zero."""
    check_masks(model, masks)
    for name, mask in masks.items():
        parameter = model.get_parameter(name).detach()
        lost = int((parameter[mask.to(parameter.device)] != 0).sum())
        if lost:
            raise BrainsurgeonError(
                f"{lost:,} of the {int(mask.sum()):,} pruned weights of {name!r} are no longer zero: fine-tune with "
                "brainsurgeon.freeze_zeros(model, optimizer), or set them back (brainsurgeon.network.zeros.set_zeros)"
            )
    return sum(int(mask.sum()) for mask in masks.values())

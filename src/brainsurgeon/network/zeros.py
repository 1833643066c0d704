"""The zeros of a pruned model: found, set, and counted again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.names import named_parameters, plain_names, unwrapped
from brainsurgeon.network.weights import find_weights


def zero_masks(model: nn.Module) -> dict[str, Tensor]:
    """Return, for every prunable weight that holds any, a mask of its exact zeros (True where it is zero)."""
    model = unwrapped(model)
    masks = {name: (model.get_parameter(name) == 0).detach() for name in find_weights(model).names}
    found = {name: mask for name, mask in masks.items() if bool(mask.any())}
    if not found:
        raise BrainsurgeonError(
            "the model has no exact zeros among its prunable weights: prune it (brainsurgeon.prune), or give masks"
        )
    return found


def check_masks(model: nn.Module, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return masks by the model's plain names; refuse what is no boolean tensor of the shape of its parameter."""
    parameters = named_parameters(model)
    if not isinstance(masks, Mapping):
        raise BrainsurgeonError(
            f"masks must be {{parameter name: boolean tensor, True where removed}}, got {_described(masks)}"
        )
    if not masks:
        raise BrainsurgeonError("there are no masks: expected {parameter name: boolean tensor, True where removed}")
    if bad := [name for name in masks if not isinstance(name, str)]:
        raise BrainsurgeonError(f"masks are named by parameters, got a mask named {bad[0]!r}")
    if any(name not in parameters for name in masks):
        masks = plain_names(masks)
    for name, mask in masks.items():
        if name not in parameters:
            raise BrainsurgeonError(f"the masks name {name!r}, which is no parameter of {type(model).__name__}")
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != parameters[name].shape:
            raise BrainsurgeonError(
                f"the mask of {name!r} must be boolean of shape {tuple(parameters[name].shape)}, got {_described(mask)}"
            )
    return dict(masks)


@torch.no_grad()
def set_zeros(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Make every masked weight exactly zero."""
    parameters = named_parameters(model)
    for name, mask in check_masks(model, masks).items():
        parameters[name].masked_fill_(mask.to(parameters[name].device), 0)


def count_zeros(model: nn.Module, masks: Mapping[str, Tensor]) -> int:
    """Count the masked weights and verify that each of them is exactly zero."""
    parameters, masks = named_parameters(model), check_masks(model, masks)
    for name, mask in masks.items():
        parameter = parameters[name].detach()
        lost = int((parameter[mask.to(parameter.device)] != 0).sum())
        if lost:
            raise BrainsurgeonError(
                f"{lost:,} of the {int(mask.sum()):,} pruned weights of {name!r} are no longer zero: fine-tune with "
                "brainsurgeon.freeze_zeros(model, optimizer), or set them back (brainsurgeon.network.zeros.set_zeros)"
            )
    return sum(int(mask.sum()) for mask in masks.values())


def _described(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"

"""Zeros that stay zero while the other weights are trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .errors import BrainsurgeonError
from .zeros import check_masks, count_zeros, set_zeros, zero_masks


class FrozenZeros:
    """Pruned weights held at exactly zero; `remove()` lets go of them, `count()` verifies them.

    Two hooks do it. A parameter's gradient is cleared on the pruned weights as soon as it is accumulated, so that they
    weigh nothing in momentum, Adam's moments or the norm that clipping takes. After every step of the optimizer they
    are set to zero, whatever it did: weight decay, a moment from before, a step that ignores gradients.
    """

    def __init__(self, model: nn.Module, optimizers: Iterable[Optimizer], masks: Mapping[str, Tensor]):
        self.model = model
        self.masks = dict(masks)
        self._pairs = [(model.get_parameter(name), mask) for name, mask in self.masks.items()]
        self._hooks: list[Any] = [optimizer.register_step_post_hook(self._after_step) for optimizer in optimizers]
        for number, (parameter, _) in enumerate(self._pairs):
            if parameter.requires_grad:
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._clear_gradient(number)))

    def count(self) -> int:
        """Return the number of pruned weights, having verified that every one of them is exactly zero."""
        return count_zeros(self.model, self.masks)

    def remove(self) -> None:
        """Let go: the weights stay as they are, and may grow again."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def __enter__(self) -> FrozenZeros:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _mask(self, number: int) -> tuple[Tensor, Tensor]:
        parameter, mask = self._pairs[number]
        if mask.device != parameter.device:  # the model has moved
            mask = mask.to(parameter.device)
            self._pairs[number] = (parameter, mask)
        return parameter, mask

    def _clear_gradient(self, number: int) -> Any:
        def clear(parameter: Tensor) -> None:
            if parameter.grad is not None and not parameter.grad.is_sparse:
                parameter.grad.masked_fill_(self._mask(number)[1], 0)

        return clear

    @torch.no_grad()
    def _after_step(self, *_: object) -> None:
        for number in range(len(self._pairs)):
            parameter, mask = self._mask(number)
            parameter.masked_fill_(mask, 0)


def freeze_zeros(
    model: nn.Module, optimizer: Optimizer | Iterable[Optimizer], masks: Mapping[str, Tensor] | None = None
) -> FrozenZeros:
    """Keep pruned weights at exactly zero through any optimizer, until `remove()` is called on what this returns.

    It holds through momentum, weight decay, Adam, gradient accumulation, clipping, mixed precision with a
    `GradScaler`, parameter groups and several optimizers; an average of the weights (EMA, SWA) that starts from the
    pruned model keeps the zeros by itself. Nothing is added to the model: its `state_dict` keeps its names, and after
    loading one the same call goes on where it stopped.

    Args:
        model: a pruned model.
        optimizer: what trains it, or several.
        masks: True where a weight is removed, by parameter name (`result.masks`, `brainsurgeon.load(…).masks`); by
            default every exact zero of the prunable weights.
    """
    optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)
    if not optimizers or not all(isinstance(one, Optimizer) for one in optimizers):
        raise BrainsurgeonError(
            f"expected a torch.optim.Optimizer, or several, to hold the zeros against; got {optimizer!r}"
        )
    masks = zero_masks(model) if masks is None else masks
    check_masks(model, masks)
    trained = {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
    if not any(id(parameter) in trained for parameter in model.parameters()):
        raise BrainsurgeonError(
            "the optimizer trains no parameter of this model: build it from model.parameters() after moving the model"
        )
    set_zeros(model, masks)
    return FrozenZeros(model, optimizers, masks)

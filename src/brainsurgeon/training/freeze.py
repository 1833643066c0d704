"""Zeros that stay zero while the other weights are trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.names import named_parameters
from brainsurgeon.network.zeros import check_masks, count_zeros, set_zeros, zero_masks

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integer type of as many bytes: a weight becomes exactly +0 by AND with 0, whatever it was, NaN included.

PyTorch does this at the speed of memory; `masked_fill_` takes ten to twenty times as long on a CPU.
"""


class FrozenZeros:
    """Pruned weights held at exactly zero; `remove()` lets go of them, `count()` verifies them.

    Two hooks do it. A parameter's gradient is cleared on the pruned weights as soon as it is accumulated, so that they
    weigh nothing in momentum, Adam's moments or the norm that clipping takes. After every step of the optimizer they
    are set to zero, whatever it did: weight decay, a moment from before, a step that ignores gradients.
    """

    def __init__(self, model: nn.Module, optimizers: Iterable[Optimizer], masks: Mapping[str, Tensor]):
        self.model = model
        self.masks = check_masks(model, masks)
        self._kept: dict[str, Tensor] = {}
        self._hooks: list[Any] = [optimizer.register_step_post_hook(self._after_step) for optimizer in optimizers]
        parameters = named_parameters(model)
        self._parameters = {name: parameters[name] for name in self.masks}
        for name, parameter in self._parameters.items():
            if parameter.requires_grad:
                self._hooks.append(parameter.register_post_accumulate_grad_hook(partial(self._clear_gradient, name)))

    def count(self) -> int:
        """Return the number of pruned weights, having verified that every one of them is exactly zero."""
        return count_zeros(self.model, self.masks)

    @torch.no_grad()
    def change(self, masks: Mapping[str, Tensor]) -> None:
        """Hold the zeros of other masks, of the same parameters, from now on; set them."""
        self.masks = check_masks(self.model, masks)
        if missing := [name for name in self.masks if name not in self._parameters]:
            raise BrainsurgeonError(f"there is no hook on {missing[0]!r}: freeze_zeros was called without a mask of it")
        self._kept.clear()
        self._after_step()

    def remove(self) -> None:
        """Let go: the weights stay as they are, and may grow again."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._kept.clear()

    def __enter__(self) -> FrozenZeros:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @torch.no_grad()
    def _clear_gradient(self, name: str, parameter: Tensor) -> None:
        if name in self.masks and parameter.grad is not None and not parameter.grad.is_sparse:
            self._clear(name, parameter.grad)

    @torch.no_grad()
    def _after_step(self, *_: object) -> None:
        for name in self.masks:
            self._clear(name, self._parameters[name])

    def _clear(self, name: str, tensor: Tensor) -> None:
        """Set the pruned entries of a tensor to zero: all bits of the others are kept."""
        integer, kept = INTEGERS[tensor.element_size()], self._kept.get(name)
        if kept is None or kept.dtype != integer or kept.device != tensor.device:  # at first, or the model has moved
            kept = self.masks[name].to(tensor.device).to(integer) - 1  # all bits set where kept, none where pruned
            self._kept[name] = kept
        tensor.detach().view(integer).bitwise_and_(kept)


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
    masks = zero_masks(model) if masks is None else check_masks(model, masks)
    trained = {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
    if not any(id(parameter) in trained for parameter in model.parameters()):
        raise BrainsurgeonError(
            "the optimizer trains no parameter of this model: build it from model.parameters() after moving the model"
        )
    set_zeros(model, masks)
    return FrozenZeros(model, optimizers, masks)

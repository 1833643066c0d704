"""What an optimizer knows of the weights it trains: which they are, and the mean squares of their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from brainsurgeon.errors import BrainsurgeonError


def as_optimizers(given: Any) -> list[Optimizer]:
    """Return one optimizer or several as a list, each without the wrappers that trainers put around it."""
    ones = list(given) if isinstance(given, Iterable) and not hasattr(given, "param_groups") else [given]
    found = [_unwrapped(one) for one in ones]
    if not found or not all(isinstance(one, Optimizer) for one in found):
        raise BrainsurgeonError(f"expected a torch.optim.Optimizer that trains the model, or several; got {given!r}")
    return found


def _unwrapped(optimizer: Any) -> Any:
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def holders(
    optimizers: Sequence[Optimizer], parameters: Mapping[str, Tensor], by_gradients: bool
) -> dict[str, Optimizer | None]:
    """Return the optimizer that trains each parameter; refuse a weight that none trains.

    A frozen one needs none, unless gradients are to score it.
    """
    trained = {id(p): one for one in optimizers for group in one.param_groups for p in group["params"]}
    found: dict[str, Optimizer | None] = {}
    for name, parameter in parameters.items():
        found[name] = trained.get(id(parameter))
        if found[name] is None and parameter.requires_grad:
            raise BrainsurgeonError(
                f"the optimizer does not hold the weight {name!r}: build it from model.parameters() after moving or "
                "wrapping the model, give all optimizers as a list, or exclude that weight"
            )
        if not parameter.requires_grad and by_gradients:
            raise BrainsurgeonError(
                f"the weight {name!r} is frozen and has no gradients to score it by: give score_power=0, which "
                "prunes by magnitude alone, or leave it out of include"
            )
    return found


def own_square(optimizer: Optimizer | None, parameter: Tensor) -> Tensor | None:
    """Return Adam's mean squared gradient of a parameter (`exp_avg_sq`) as it stands, None where there is none."""
    state = {} if optimizer is None else optimizer.state.get(parameter, {})
    square = state.get("exp_avg_sq")
    return square if isinstance(square, Tensor) and square.shape == parameter.shape else None


def unbiased_square(optimizer: Optimizer | None, parameter: Tensor) -> Tensor | None:
    """Return the same without its bias towards zero: v/(1 − β₂^t) after t steps."""
    square = own_square(optimizer, parameter)
    if square is None or optimizer is None:
        return None
    group = next(group for group in optimizer.param_groups if any(p is parameter for p in group["params"]))
    steps = optimizer.state[parameter].get("step")
    if steps is None or not float(steps) or "betas" not in group:
        return square
    return square / (1 - group["betas"][1] ** float(steps))

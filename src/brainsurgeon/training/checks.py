"""What a training loop that prunes is asked to do, checked before and between its steps."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.gradual.loop import Plan

FEWEST = 2
"""Steps before the last cut, at the least: with one, nothing is gradual."""


def checked_plan(end: float, cuts: int, power: float, score_power: float, returning: bool) -> Plan:
    """Return the plan of a training loop."""
    return Plan(end=end, cuts=cuts, power=power, score_power=score_power, returning=returning).that_cuts()


def checked_steps(steps: Any, end: float) -> int:
    """Return the number of steps; refuse too few."""
    if isinstance(steps, bool) or not isinstance(steps, Integral):
        raise BrainsurgeonError(
            "steps must be the whole number of optimizer steps of the training, such as epochs * len(loader), "
            f"got {steps!r}"
        )
    if int(steps) * end < FEWEST:
        raise BrainsurgeonError(
            f"{steps} steps are too few to prune in by and by: the last cut is due after {end:g} of them, which must "
            f'be {FEWEST} or more. Train longer, or prune at once by brainsurgeon.prune(model, data, sparsity, "mp")'
        )
    return int(steps)


def check_trained(parameters: Mapping[str, Tensor], now: Mapping[str, Tensor], step: int) -> None:
    """Refuse to prune weights that are no longer the optimizer's, lie on several devices, or are not finite."""
    for name, parameter in parameters.items():
        if now.get(name) is not parameter:
            raise BrainsurgeonError(
                f"parameter {name!r} is no longer the one that the optimizer trains: moving the model to another "
                "device, or loading it, has replaced it. Make the optimizer and the Pruner after that, and load "
                "their states"
            )
        if not bool(torch.isfinite(parameter).all()):
            raise BrainsurgeonError(
                f"parameter {name!r} holds NaN or infinite values at step {step}: training has diverged, "
                "lower the learning rate"
            )
    devices = sorted({str(parameter.device) for parameter in parameters.values()})
    if len(devices) > 1:
        raise BrainsurgeonError(f"the weights must be on one device, the model's are now on {devices}")

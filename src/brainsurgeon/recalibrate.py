"""Batch-norm statistics taken again: a pruned network's activations have other means and variances."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from .batches import Batch
from .loss import call


def recalibrate_norms(model: nn.Module, batches: Iterable[Batch], device: torch.device | str) -> int:
    """Set the running statistics of every batch-norm layer to those of these samples; return how many there are.

    No weight changes. A model without batch-norm layers is left as it is.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    if not norms:
        return 0
    modes = {module: module.training for module in model.modules()}
    momenta = [norm.momentum for norm in norms]
    home = next(model.parameters()).device
    model.to(device).eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain average over batches
        norm.train()
    with torch.no_grad():
        for batch in batches:
            call(model, _inputs(batch))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    for module, mode in modes.items():
        module.training = mode
    model.to(home)
    return len(norms)


def _inputs(batch: Any) -> Any:
    return batch[0] if isinstance(batch, list | tuple) else batch

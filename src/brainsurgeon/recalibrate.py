"""Batch-norm statistics taken again: a pruned network's activations have other means and variances."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from .batches import READ, Batch, batch_size, regroup
from .loss import BatchLoss


def recalibrate_norms(batch_loss: BatchLoss, batches: Iterable[Batch], device: torch.device | str) -> int:
    """Set the running statistics of every batch-norm layer to those of these samples; return how many there are.

    No weight changes. A model without batch-norm layers is left as it is.
    """
    model = batch_loss.model
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
    try:
        with torch.no_grad():
            for number, batch in enumerate(regroup(batches, READ)):
                if number == 0 or batch_size(batch) > 1:  # a single sample has no variance
                    batch_loss(batch)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, mode in modes.items():
            module.training = mode
        model.to(home)
    return len(norms)

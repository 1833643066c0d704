"""The running statistics of batch normalisation, which training leaves noisy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

BatchNorm = nn.modules.batchnorm._BatchNorm


def train_statistics(model: nn.Module) -> None:
    """Let batch normalisation follow the batches; all else is in evaluation mode, where nothing is drawn at random.

    A normalisation whose own parameters are frozen keeps its statistics, too.
    """
    for module in model.modules():
        module.training = isinstance(module, BatchNorm) and not _is_frozen(module)


def _is_frozen(module: nn.Module) -> bool:
    own = list(module.parameters(recurse=False))
    return bool(own) and not any(parameter.requires_grad for parameter in own)


@contextmanager
def kept_statistics(model: nn.Module) -> Iterator[None]:
    """Let batch normalisation use its running statistics for a while: a single sample may have no variance."""
    norms = following(model)
    for module in norms:
        module.training = False
    try:
        yield
    finally:
        for module in norms:
            module.training = True


def following(model: nn.Module) -> list[BatchNorm]:
    """Return the batch normalisations whose running statistics follow the batches."""
    norms = (module for module in model.modules() if isinstance(module, BatchNorm))
    return [module for module in norms if module.training and module.running_mean is not None]


@torch.no_grad()
def average_statistics(model: nn.Module, passes: Iterable[Callable[[], object]]) -> None:
    """Give the batch normalisations that follow the batches the plain mean of their statistics over some passes.

    Training leaves a running mean in which the last ten batches weigh most, with their noise.
    """
    norms = following(model)
    momenta = [module.momentum for module in norms]
    counts = [None if (found := module.num_batches_tracked) is None else found.clone() for module in norms]
    try:
        for module in norms:
            module.momentum = None  # the mean of all batches that are counted
            if module.num_batches_tracked is not None:
                module.num_batches_tracked.zero_()
        for one in passes:
            one()
    finally:
        for module, momentum, count in zip(norms, momenta, counts, strict=True):
            module.momentum = momentum
            if module.num_batches_tracked is not None and count is not None:
                module.num_batches_tracked.copy_(count)

"""The gradient of one batch's loss by plain autograd, at the model's own parameters.

Nothing is swapped while the graph is alive: a model that computes a part again on the way back (checkpointing), or that
holds a weight in another place too, finds the same parameters there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.samples.batches import Batch


def loss_gradients(batch_loss: BatchLoss, names: Sequence[str], batch: Batch) -> dict[str, Tensor]:
    """Return the gradient of the loss for each of the model's parameters; zeros where the batch does not meet one."""
    parameters = [batch_loss.model.get_parameter(name) for name in names]
    with _trainable(parameters), torch.enable_grad():
        loss = batch_loss(batch)
        if not loss.requires_grad:  # the batch takes a way through the model that meets no prunable weight
            found: Sequence[Tensor | None] = [None] * len(parameters)
        else:
            try:
                found = torch.autograd.grad(loss, parameters, allow_unused=True)
            except RuntimeError as error:
                if "checkpoint" not in str(error):
                    raise
                found = _by_backward(batch_loss, parameters, batch)
    return {
        name: torch.zeros_like(parameter) if gradient is None else _dense(gradient)
        for name, parameter, gradient in zip(names, parameters, found, strict=True)
    }


def _by_backward(batch_loss: BatchLoss, parameters: Sequence[nn.Parameter], batch: Batch) -> list[Tensor | None]:
    """Take the gradients as training does: re-entrant checkpointing knows no other way."""
    every = list(batch_loss.parameters())
    before = [parameter.grad for parameter in every]
    try:
        for parameter in every:
            parameter.grad = None
        batch_loss(batch).backward()
        return [parameter.grad for parameter in parameters]
    finally:
        for parameter, gradient in zip(every, before, strict=True):
            parameter.grad = gradient


@contextmanager
def _trainable(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    before = [parameter.requires_grad for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.requires_grad_()
        yield
    finally:
        for parameter, flag in zip(parameters, before, strict=True):
            parameter.requires_grad_(flag)


def _dense(gradient: Tensor) -> Tensor:
    return gradient.detach() if gradient.layout == torch.strided else gradient.detach().to_dense()

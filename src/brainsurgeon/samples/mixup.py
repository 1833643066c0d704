"""Samples made of samples: the dense network answers for any input, so it can be matched on more than there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from brainsurgeon.samples.batches import Batch, batch_size, map_tensors, sent, tensors_of
from brainsurgeon.samples.draws import generator_of

MIXED = 0.5
"""The share of samples that are mixed of two."""


def mixup(batches: Iterable[Batch], seed: int, targets: bool = True) -> Iterator[Batch]:
    """Yield batches (inputs, targets) whose inputs are, one in two, λx + (1 − λ)x′ with another of the batch.

    λ is uniform in [0, 1]. The targets stay, for a loss that does not ask for them. Inputs that are no real numbers,
    such as tokens, stay as they are. Without `targets` a batch is inputs alone.
    """
    generator = generator_of(seed)
    for batch in batches:
        yield (_mixed(batch[0], generator), batch[1]) if targets else _mixed(batch, generator)


def _mixed(inputs: Batch, generator: torch.Generator) -> Batch:
    if not all(tensor.is_floating_point() for tensor in tensors_of(inputs)):
        return inputs
    size = batch_size(inputs)
    order, share = torch.randperm(size, generator=generator), torch.rand(size, generator=generator)
    share = share.masked_fill(torch.rand(size, generator=generator) >= MIXED, 1.0)

    def of(tensor: Tensor) -> Tensor:
        part = sent(share, tensor.device).to(tensor.dtype).view(-1, *[1] * (tensor.dim() - 1))
        return part * tensor + (1 - part) * tensor[sent(order, tensor.device)]

    return map_tensors(of, inputs)

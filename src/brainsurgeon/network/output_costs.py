"""What the loss feels of an error in a layer's outputs: the squared gradients there, from one backward pass a batch.

An error Δy_o in output o changes the loss by about ½E[g_o²]Δy_o² (the diagonal of the Fisher matrix of the outputs).
With c_o = E[Σ_positions g_o²] a layer's error is ½Σ_o c_o Δw_o A Δw_oᵀ, in the units of the loss, whatever the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import sum_over_ranks, world_size
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import pulse
from brainsurgeon.network.checks import DETACHED
from brainsurgeon.network.linear_maps import LinearMap
from brainsurgeon.samples.batches import Batch, batch_size


def output_costs(
    loss: Callable[[Batch], Tensor], layers: Sequence[LinearMap], batches: Sequence[Batch]
) -> dict[str, Tensor]:
    """Return c, one number for each output row of each layer, from the mean losses of these batches.

    Each rank gives batches of its own, or none. No parameter needs a gradient; one that asks for it gets it.
    """
    totals: dict[str, Tensor] = {}
    for batch in batches:
        pulse()
        with slopes_added(layers, totals, batch_size(batch)):
            backward(loss(batch))
    return mean_costs(layers, totals, sum(map(batch_size, batches)))


def backward(loss: Tensor) -> None:
    """Go backward from a loss, or say that there is no way."""
    if not loss.requires_grad:
        raise BrainsurgeonError(DETACHED)
    loss.backward()


@contextmanager
def slopes_added(layers: Sequence[LinearMap], totals: dict[str, Tensor], size: int) -> Iterator[None]:
    """Have the squared slopes at the layers' outputs added up in the passes of a while, with gradients.

    The loss is the mean over `size` samples.
    """

    def watch(layer: LinearMap, _: nn.Module, __: Any, output: Tensor) -> Tensor:
        if not torch.is_grad_enabled():  # checkpointing computes this part once more on the way back
            return output
        if not output.requires_grad:  # nothing before it needs a gradient: gradients begin here
            output = output.detach().requires_grad_().clone()  # a copy may be written into, a leaf may not
        output.register_hook(partial(_add, totals, layer, size))
        return output

    hooks = [layer.module.register_forward_hook(partial(watch, layer)) for layer in layers]
    try:
        with torch.enable_grad():
            yield
    finally:
        for hook in hooks:
            hook.remove()


def mean_costs(layers: Sequence[LinearMap], totals: dict[str, Tensor], samples: int) -> dict[str, Tensor]:
    """Return the means over the samples of all ranks."""
    totals, samples = _added_up(layers, totals, samples)
    return {name: total / samples for name, total in totals.items()}


def _added_up(layers: Sequence[LinearMap], totals: dict[str, Tensor], samples: int) -> tuple[dict[str, Tensor], int]:
    """Return the sums over all ranks, sent as one vector; a layer may have been called on some of them alone."""
    if world_size() == 1:
        return totals, samples
    sizes = [layer.rows(layer.weight).shape[:-1].numel() for layer in layers]
    device = next((total.device for total in totals.values()), torch.device("cpu"))
    parts = [
        totals[layer.name] if layer.name in totals else torch.zeros(size, dtype=torch.float64, device=device)
        for layer, size in zip(layers, sizes, strict=True)
    ]
    seen = torch.tensor([samples, *(layer.name in totals for layer in layers)], dtype=torch.float64, device=device)
    *sums, seen = sum_over_ranks(torch.cat([*parts, seen])).split([*sizes, len(layers) + 1])
    called = seen[1:].tolist()
    found = {layer.name: total for layer, total, count in zip(layers, sums, called, strict=True) if count}
    return found, int(seen[0])


def _add(totals: dict[str, Tensor], layer: LinearMap, size: int, gradient: Tensor) -> None:
    """Add the squares of one batch: the loss is a mean over `size` samples, so each sample's slope is that larger."""
    axis = 1 if isinstance(layer.module, nn.Conv1d | nn.Conv2d | nn.Conv3d) else gradient.dim() - 1
    rows = (gradient.detach().float() * size).square().movedim(axis, 0)
    squares = rows.reshape(len(rows), -1).sum(1).double()  # of one dimension, too, where samples go one by one
    totals[layer.name] = totals[layer.name] + squares if layer.name in totals else squares

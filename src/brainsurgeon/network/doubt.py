"""How much the dense network doubts each sample: where it is sure, there is little left to learn."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from brainsurgeon.events.clock import pulse
from brainsurgeon.network.loss import OutputLoss
from brainsurgeon.samples.batches import Batch

MOST = 4.0
"""No weight is higher, however much its sample is doubted."""


@torch.no_grad()
def doubts(parts: OutputLoss, dense: nn.Module, batches: Iterable[Batch]) -> Tensor:
    """Return 1 − max_c p_c of each sample, with the dense network's probabilities p of its classes.

    Labels are not asked: a wrong one would make a sample look hard, and doubt is what a network says of itself.
    """
    found = []
    for batch in batches:
        pulse()
        found.append(1 - parts.outputs(dense, batch).float().softmax(1).amax(1))
    return torch.cat(found).cpu() if found else torch.zeros(0)


def emphasis(doubt: Tensor, share: float) -> Tensor | None:
    """Return the weights of the samples in a draw: wᵢ = 1 − s + s·dᵢ/d̄ for a share s of the draws, at most `MOST`.

    None, which is evenly, where no share is given or there is no doubt of anything.
    """
    mean = doubt.double().mean()
    if not share or not mean.isfinite() or mean <= 0:
        return None
    return (1 - share + share * doubt.double() / mean).clamp(max=MOST)

"""What a report wants to show of a pruned model and no longer has at hand then: its weights, before and after."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from brainsurgeon.network.weights import PrunableWeights

BINS = 61
MOST_LAYERS = 60


def histograms(weights: PrunableWeights, before: Tensor, after: Tensor, pruned: Tensor) -> list[dict[str, Any]]:
    """Return the histogram of all weights and of each layer, before pruning and of those kept.

    Of a network with very many layers the largest are shown.
    """
    shown = sorted(weights.layers, key=lambda layer: -layer.size)[:MOST_LAYERS]
    parts = [("all layers", slice(None))]
    parts += [(layer.name, layer.columns) for layer in weights.layers if layer in shown]
    return [_one(name, before[part], after[part][~pruned[part]]) for name, part in parts]


def _one(name: str, before: Tensor, kept: Tensor) -> dict[str, Any]:
    """Bins are symmetric about zero and reach to the largest weight before or after, outliers apart."""
    before, kept = before.double().cpu(), kept.double().cpu()
    both = torch.cat([before, kept]).abs()
    reach = float(both.kthvalue(max(1, int(0.999 * both.numel()))).values) or float(both.max()) or 1.0

    def counts(values: Tensor) -> list[int]:
        return torch.histc(values.clamp(-reach, reach), BINS, -reach, reach).long().tolist()

    return {"name": name, "reach": reach, "before": counts(before), "after": counts(kept)}

"""Weights that calibration tells nothing of, pruned by magnitude: no linear maps, and layers that were not called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.network.held import writing
from brainsurgeon.network.linear_maps import LinearMap


def by_magnitude(model: nn.Module, counts: Mapping[str, int]) -> dict[str, Tensor]:
    """Prune the smallest weights of each parameter, in place; return the masks."""
    masks = {}
    for name, count in counts.items():
        with writing(model, name) as values:
            flat = values.abs().reshape(1, -1).float()
            masks[name] = Pattern().prune_lowest(flat, count).view(values.shape)
            values.masked_fill_(masks[name], 0.0)
    return masks


def maps_by_magnitude(
    model: nn.Module, layers: Sequence[LinearMap], counts: Mapping[str, int], pattern: Pattern
) -> dict[str, Tensor]:
    """Prune the smallest weights of each linear map in a pattern, in place; return the masks."""
    masks = {}
    for layer in layers:
        with writing(model, layer.name) as values:
            rows = layer.rows(values.abs().float())
            rows = rows[0] if rows.shape[0] == 1 else rows
            mask = pattern.prune_lowest(rows, counts[layer.name])
            masks[layer.name] = layer.stored(mask.reshape(-1, *mask.shape[-2:]))
            values.masked_fill_(masks[layer.name], 0.0)
    return masks

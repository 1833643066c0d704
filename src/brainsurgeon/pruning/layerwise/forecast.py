"""What a layer-wise run will take, from shapes alone: bytes on the device and beside it, operations by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from brainsurgeon.network.linear_maps import LinearMap, linear_maps

PRODUCTS = 200
"""Products of 2Rm² operations that a layer's mask and weights take, as counted."""
FACTORS = 7
"""Factors of m³ operations."""
COPIES = 16
"""Arrays of a layer's size that its solution holds at once."""
PASSES = 3.6
"""Passes of every block over all samples: one for each group of layers, in part, and one for the outputs."""
LOOKED_AT = 32
"""Samples for the costs and the loss before and after."""


@dataclass(frozen=True)
class LayerwiseForecast:
    """Bytes: the largest layer at work with its moments, and the hidden states that wait. Operations by step."""

    layer_bytes: int
    hidden_bytes: int
    passes: float
    moments: float
    layers: float

    @property
    def operations(self) -> float:
        """All of them."""
        return self.passes + self.moments + self.layers


def forecast(model: nn.Module, names: Sequence[str], samples: int, positions: int) -> LayerwiseForecast:
    """Return what pruning these parameters layer by layer takes.

    `samples` are the calibration samples, `positions` the columns that one sample gives a layer (its tokens; the
    pixels of a convolution's output, about).
    """
    maps = linear_maps(model, names)
    columns = samples * positions
    sizes = [_shape(layer) for layer in maps]
    # Forward, backward and forward again, and the loss after: of the whole model, on a few samples.
    whole = 8.0 * sum(parameter.numel() for parameter in model.parameters()) * positions * min(samples, LOOKED_AT)
    widest = max((m for *_, m in sizes), default=0)
    return LayerwiseForecast(
        max((groups * (24 * m * m + COPIES * 4 * rows * m) for groups, rows, m in sizes), default=0),
        4 * columns * widest,
        2.0 * columns * PASSES * sum(g * r * m for g, r, m in sizes) + whole,
        2.0 * columns * sum(g * m * m for g, _, m in sizes),
        float(sum(g * (PRODUCTS * 2 * r * m * m + FACTORS * m**3) for g, r, m in sizes)),
    )


def _shape(layer: LinearMap) -> tuple[int, int, int]:
    groups, rows, inputs = layer.rows(layer.weight).shape
    return groups, rows, inputs

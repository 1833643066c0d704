"""Weights, samples and bytes for estimates of memory; nothing is made of them."""

from typing import Any

from torch import nn

from brainsurgeon.network.footprint import Footprint
from brainsurgeon.network.weights import Layer, PrunableWeights, find_weights
from brainsurgeon.pruning.memory import memory_needs
from brainsurgeon.pruning.methods import make_method

MODEL_BYTES = 4 * (24 * 12 + 3 * 24)
SAMPLE = Footprint(sample=4000, passing=20_000, samples=50_000, resident=False)


def weights() -> PrunableWeights:
    """Two layers of 360 weights together."""
    return find_weights(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)))


def total(method: str, **settings: Any) -> int:
    """The bytes that a method is said to need for them."""
    return sum(memory_needs(make_method(method, settings), weights(), MODEL_BYTES).values())


def large() -> PrunableWeights:
    """Layers of very different sizes; nothing is made of them."""
    layers, offset = [], 0
    for number, (rows, columns) in enumerate(((64, 300), (4096, 4096), (10, 4096))):
        layers.append(Layer(f"{number}.weight", (rows, columns), offset, rows * columns))
        offset += rows * columns
    return PrunableWeights(tuple(layers))

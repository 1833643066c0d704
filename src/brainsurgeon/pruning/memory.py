"""What a method needs of memory, part by part: said before the work starts, with the setting that would fit."""

from __future__ import annotations

import bisect
import math
from dataclasses import replace
from typing import Any

import torch

from brainsurgeon.engine.blocks import make_blocks
from brainsurgeon.network.memory import GIB, DoesNotFitError, available_bytes
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.methods import Method
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.staged.stage import COLUMNS_PER_ROW, HOPELESS, rows_for

COPIES = 3
"""Of the model: the user's, the one under examination, the pruned one."""
VECTORS = 60 * 9
"""Bytes a weight for masks and vectors: the draws of Algorithm 2 and their costs above all."""
STAGED_VECTORS = 40 * 8
"""The same in stages: the places where a stage may end."""


def memory_needs(method: Method, weights: PrunableWeights, model_bytes: int) -> dict[str, int]:
    """Return the bytes that a method takes, part by part."""
    copies = {"copies of the model": COPIES * model_bytes}
    if not method.uses_curvature:
        return copies | {"masks and vectors": 4 * 9 * weights.size}
    if isinstance(method, OneShot):
        gradients = _fisher(weights, method.num_gradients, method.dtype, method.blocks)
        return gradients | {"masks and vectors": VECTORS * weights.size} | copies
    if isinstance(method, Layerwise):
        widest = max(math.prod(layer.shape[1:]) for layer in weights.layers)
        largest = max(layer.size for layer in weights.layers)
        return {"copies of the model": 2 * model_bytes, "moments": 6 * 8 * widest**2, "one layer": 12 * 4 * largest}
    if isinstance(method, Gradual | Auto):
        return {"copies of the model": 4 * model_bytes, "training": 8 * 4 * weights.size}
    parts = {"masks and vectors": STAGED_VECTORS * weights.size} | copies
    if method.curvature != "gram":
        rows = rows_for(weights.size)
        if method.curvature == "fisher" or weights.size <= HOPELESS * rows:
            parts |= _fisher(weights, rows, method.dtype, method.blocks, COLUMNS_PER_ROW)
    if method.curvature != "fisher":
        parts["Gram matrices"] = 2 * 8 * sum(math.prod(layer.shape[1:]) ** 2 for layer in weights.layers)
    return parts


def _fisher(
    weights: PrunableWeights, rows: int, dtype: torch.dtype, blocks: str | int, columns_per_row: int = 40
) -> dict[str, int]:
    parts = make_blocks(blocks, weights.layers, rows, columns_per_row)
    widest = max(block.stop - block.start for block in parts)
    return {"gradients": rows * weights.size * dtype.itemsize, "factor": 2 * 8 * min(rows, widest) ** 2}


def check_memory(method: Method, weights: PrunableWeights, model_bytes: int, device: torch.device) -> None:
    """Refuse what the device cannot hold, with the settings that would fit."""
    free = available_bytes(device)

    def needed(**changes: Any) -> int:
        return sum(memory_needs(replace(method, **changes), weights, model_bytes).values())

    if free is None or needed() <= free:
        return
    remedies = []
    if isinstance(method, OneShot) and method.uses_curvature:
        rows = range(1, method.num_gradients)
        if fitting := bisect.bisect_right(rows, free, key=lambda k: needed(num_gradients=k)):
            remedies.append(f"num_gradients={fitting} or fewer (means over more samples with gradient_batch)")
    if (
        isinstance(method, OneShot | Staged)
        and method.uses_curvature
        and method.dtype.itemsize > 2
        and needed(dtype=torch.bfloat16) <= free
    ):
        remedies.append("dtype=bfloat16")
    remedies.append("fewer layers (include, exclude)")
    largest = max(memory_needs(method, weights, model_bytes).items(), key=lambda part: part[1])
    raise DoesNotFitError(
        f"this run needs about {needed() / GIB:.1f} GiB ({largest[1] / GIB:.1f} of them for {largest[0]} of "
        f"{weights.size:,} weights), and {free / GIB:.1f} GiB are free on {device}. "
        f"What would fit: {'; or '.join(remedies)}"
    )

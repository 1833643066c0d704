"""Refuse what the memory cannot hold, with changes that would fit, each tried by the same estimate before."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from brainsurgeon.network.footprint import Footprint
from brainsurgeon.network.memory import DoesNotFitError, available_bytes, readable
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.memory import memory_needs
from brainsurgeon.pruning.methods import Method, make_method
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.staged.method import Staged

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

FEWEST_ROWS = 8
"""Fewer gradients than this are no advice."""
FEWEST_SAMPLES = 64


def needs_of(method: Method, surgery: Surgery) -> dict[str, int]:
    """Return the bytes that a method will take for a model that is prepared, part by part."""
    return memory_needs(method, surgery.weights, surgery.resident_bytes(method), surgery.footprint_of(method))


def check_memory(
    method: Method,
    weights: PrunableWeights,
    model_bytes: int,
    device: torch.device,
    sample: Footprint | None = None,
    free: int | None = None,
) -> None:
    """Refuse what the device cannot hold, with the settings that would fit; `free` where that was asked before."""
    free = available_bytes(device) if free is None else free
    parts = memory_needs(method, weights, model_bytes, sample)
    needed = sum(parts.values())
    if free is None or needed <= free:
        return
    remedies = list(_remedies(method, weights, model_bytes, sample, free))
    largest = max(parts.items(), key=lambda part: part[1])
    told = f"What would fit: {'; or '.join(remedies)}" if remedies else "Nothing that it can be told would make it fit"
    raise DoesNotFitError(
        f"this run needs about {readable(needed)} ({readable(largest[1])} of them for {largest[0]} of "
        f"{weights.size:,} weights), and {readable(free)} are free on {device}. {told}"
    )


def _remedies(
    method: Method, weights: PrunableWeights, model_bytes: int, sample: Footprint | None, free: int
) -> Iterator[str]:
    """Yield changes that make the estimate fit."""

    def needed(changed: Method, some: PrunableWeights = weights) -> int:
        return sum(memory_needs(changed, some, model_bytes, sample).values())

    def fits(**changes: Any) -> bool:
        return needed(replace(method, **changes)) <= free

    if isinstance(method, OneShot) and method.uses_curvature:
        rows = range(1, method.num_gradients)
        fitting = bisect.bisect_right(rows, free, key=lambda k: needed(replace(method, num_gradients=k)))
        if fitting >= FEWEST_ROWS:
            yield f"num_gradients={fitting} or fewer (means over more samples with gradient_batch)"
    wide = isinstance(method, OneShot | Staged) and method.uses_curvature and method.dtype.itemsize > 2
    if wide and fits(dtype=torch.bfloat16):
        yield "dtype=bfloat16"
    for count in (10_000, 5000, 2000, 1000, 500, 200, FEWEST_SAMPLES):
        most = getattr(method, "max_samples", 0)
        if (most is None or count < most) and fits(max_samples=count):
            yield f"max_samples={count}"
            break
    if isinstance(method, Layerwise) and sample is not None and sample.tokens and sample.chain.blocks:
        block = model_bytes // sample.chain.blocks
        if sum(memory_needs(method, weights, block, sample).values()) <= free:
            yield "the weights left on disk (--on-disk, load_language_model(…, on_disk=…)) if they are in a folder"
    for name in ("layerwise", "mp"):
        if name != method.name and needed(make_method(name)) <= free:
            yield f'method="{name}"'
            break
    order = sorted(weights.layers, key=lambda layer: layer.size)
    for count in range(len(order) - 1, 0, -1):
        kept = PrunableWeights(tuple(layer for layer in weights.layers if layer in order[:count]))
        if needed(method, kept) <= free:
            yield f"exclude={[layer.name for layer in order[count:]]!r}"
            break

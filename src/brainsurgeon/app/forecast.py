"""What a run would prune, and what it would take on this machine, found out before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch

from brainsurgeon.app.estimate import estimate_seconds
from brainsurgeon.app.recipe import Recipe
from brainsurgeon.app.target import Target
from brainsurgeon.engine.blocks import COLUMNS_PER_ROW as WIDE
from brainsurgeon.engine.blocks import make_blocks
from brainsurgeon.engine.budget import Share, apportion, as_budget, share_out
from brainsurgeon.network.memory import DoesNotFitError, available_bytes
from brainsurgeon.network.names import name_matches
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.pruning.fitting import check_memory, needs_of
from brainsurgeon.pruning.layerwise.forecast import forecast
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.memory import rows_of
from brainsurgeon.pruning.methods import Method
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.staged.stage import COLUMNS_PER_ROW
from brainsurgeon.pruning.surgery import Surgery


@dataclass(frozen=True)
class LayerPlan:
    """One parameter: how many of its weights magnitude pruning would take, None where it is left alone."""

    name: str
    shape: tuple[int, ...]
    size: int
    pruned: int | None


@dataclass(frozen=True)
class Inspection:
    """A run, foreseen."""

    layers: tuple[LayerPlan, ...]
    size: int
    count: int
    blocks: int
    widest: int
    memory: dict[str, int]
    free: int | None
    seconds: dict[str, float]
    staged: bool = False
    problem: str = ""
    even: bool = False
    """Whether the layers' counts are in proportion to their sizes: weights on disk are not read for them."""


def inspect(recipe: Recipe, target: Target, timed: bool = True) -> Inspection:
    """Look at the model, and time a few gradients and losses where the method needs them and `timed` is set."""
    common = recipe.common(target.exclude)
    methods = recipe.make_methods()
    surgery = Surgery(target.model, target.data, target.loss, **common, progress=False)
    weights, device = surgery.weights, surgery.device
    needs = [needs_of(method, surgery) for method in methods.values()]
    problem, free = "", available_bytes(device)
    try:
        for method in methods.values():
            check_memory(method, weights, surgery.resident_bytes(method), device, surgery.footprint_of(method), free)
    except DoesNotFitError as error:
        problem = str(error)
    blocks = _blocks(next(iter(methods.values())), surgery)
    plans = _plans(recipe, target, weights, bool(surgery.held))
    return Inspection(
        layers=plans,
        size=weights.size,
        count=sum(plan.pruned or 0 for plan in plans),
        blocks=len(blocks),
        widest=max(block.stop - block.start for block in blocks),
        memory=max(needs, key=lambda parts: sum(parts.values())),
        free=free,
        seconds=_seconds(recipe, target, surgery, methods) if timed and not problem else {},
        staged=any(isinstance(method, Staged) for method in methods.values()),
        problem=problem,
        even=bool(surgery.held),
    )


def _seconds(recipe: Recipe, target: Target, surgery: Surgery, methods: dict[str, Method]) -> dict[str, float]:
    """Return the seconds of each step: of layer-wise methods by their own forecast, of others by gradients."""
    found: dict[str, float] = {}
    streamed = {name: method for name, method in methods.items() if isinstance(method, Layerwise)}
    for name, method in streamed.items() if target.data is not None else ():
        sparsity = recipe.sparsity_of(recipe.sparsities[0], surgery.weights.parts)
        for step, seconds in forecast(surgery, sparsity, method, recipe.budget).seconds.items():
            found[step if len(methods) == 1 else f"{name}: {step}"] = seconds * len(recipe.sparsities)
    if any(method.uses_curvature for name, method in methods.items() if name not in streamed):
        found |= estimate_seconds(recipe, surgery)
    return found


def _blocks(method: Method, surgery: Surgery) -> list[slice]:
    """Return the blocks of a method's curvature."""
    layers = surgery.weights.layers
    if not isinstance(method, OneShot | Staged):
        return [layer.columns for layer in layers]
    rows = rows_of(method, surgery.weights, surgery.footprint_of(method))
    return make_blocks(method.blocks, layers, rows, COLUMNS_PER_ROW if isinstance(method, Staged) else WIDE)


def _plans(recipe: Recipe, target: Target, weights: PrunableWeights, even: bool) -> tuple[LayerPlan, ...]:
    sparsity = recipe.sparsity_of(recipe.sparsities[0], weights.parts)
    shares = share_out(recipe.budget, sparsity, weights.parts, name_matches)
    if even:
        counts = {name: count for share in shares for name, count in _evenly(share).items()}
    else:
        values = weights.flatten(target.model).abs().cpu()
        pruned = as_budget(shares, torch.device("cpu")).lowest(values)
        counts = {layer.name: int(pruned[layer.columns].sum()) for layer in weights.layers}
    return tuple(
        LayerPlan(name, tuple(parameter.shape), parameter.numel(), counts.get(name))
        for name, parameter in target.model.named_parameters()
    )


def _evenly(share: Share) -> dict[str, int]:
    """Return the counts of a share's layers in proportion to their sizes."""
    sizes = [size for _, _, size in share.layers]
    quotas = [Fraction(share.count * size, sum(sizes)) for size in sizes]
    return dict(zip([name for name, _, _ in share.layers], apportion(share.count, quotas, sizes), strict=True))

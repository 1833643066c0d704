"""What a run would prune, and what it would take on this machine, found out before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from brainsurgeon.app.estimate import estimate_seconds
from brainsurgeon.app.recipe import Recipe
from brainsurgeon.app.target import Target
from brainsurgeon.engine.blocks import make_blocks
from brainsurgeon.engine.budget import as_budget, share_out
from brainsurgeon.network.memory import DoesNotFitError, available_bytes, check_device
from brainsurgeon.network.names import name_matches
from brainsurgeon.network.weights import PrunableWeights, find_weights
from brainsurgeon.pruning.fitting import check_memory, needs_of
from brainsurgeon.pruning.methods import Method
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.staged.stage import COLUMNS_PER_ROW, rows_for
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


def inspect(recipe: Recipe, target: Target, timed: bool = True) -> Inspection:
    """Look at the model, and time a few gradients and losses where the method needs them and `timed` is set."""
    common = recipe.common(target.exclude)
    weights = find_weights(target.model, common["include"], common["exclude"])
    device = check_device(recipe.device or target.model.get_parameter(weights.names[0]).device)
    methods = recipe.make_methods()
    surgery = Surgery(target.model, target.data, target.loss, **common, progress=False)
    needs = [needs_of(method, surgery) for method in methods.values()]
    problem = ""
    try:
        for method in methods.values():
            check_memory(method, weights, surgery.model_bytes, device, surgery.footprint)
    except DoesNotFitError as error:
        problem = str(error)
    curvature = any(method.uses_curvature for method in methods.values())
    blocks = _blocks(methods.values(), weights)
    plans = _plans(recipe, target, weights)
    return Inspection(
        layers=plans,
        size=weights.size,
        count=sum(plan.pruned or 0 for plan in plans),
        blocks=len(blocks),
        widest=max(block.stop - block.start for block in blocks),
        memory=max(needs, key=lambda parts: sum(parts.values())),
        free=available_bytes(device),
        seconds=estimate_seconds(recipe, target, weights, device) if timed and curvature else {},
        staged=any(isinstance(method, Staged) for method in methods.values()),
        problem=problem,
    )


def _blocks(methods: Iterable[Method], weights: PrunableWeights) -> list[slice]:
    """Return the blocks of the first method's curvature."""
    method = next(iter(methods))
    if isinstance(method, OneShot):
        return make_blocks(method.blocks, weights.layers, method.num_gradients)
    if isinstance(method, Staged):
        return make_blocks(method.blocks, weights.layers, rows_for(weights.size), COLUMNS_PER_ROW)
    return [layer.columns for layer in weights.layers]


def _plans(recipe: Recipe, target: Target, weights: PrunableWeights) -> tuple[LayerPlan, ...]:
    values = weights.flatten(target.model).abs().cpu()
    sparsity = recipe.sparsity_of(recipe.sparsities[0], weights.parts)
    shares = share_out(recipe.budget, sparsity, weights.parts, name_matches)
    pruned = as_budget(shares, torch.device("cpu")).lowest(values)
    counts = {layer.name: int(pruned[layer.columns].sum()) for layer in weights.layers}
    return tuple(
        LayerPlan(name, tuple(parameter.shape), parameter.numel(), counts.get(name))
        for name, parameter in target.model.named_parameters()
    )

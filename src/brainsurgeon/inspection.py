"""What a run would prune, and what it would take on this machine, found out before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .blocks import make_blocks
from .estimate import estimate_seconds
from .mask import make_budget
from .memory import DoesNotFitError, available_bytes, check_device, check_memory, memory_needs
from .recipe import Recipe
from .target import Target
from .weights import PrunableWeights, find_weights


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
    settings = recipe.largest_examination()
    weights = find_weights(target.model, settings.include, settings.exclude)
    device = check_device(settings.device or target.model.get_parameter(weights.names[0]).device)
    methods = recipe.make_methods()
    curvature = any(method.uses_curvature for method in methods.values())
    blocks = make_blocks(settings.blocks, weights, settings.num_gradients)
    model_bytes = sum(tensor.nbytes for tensor in target.model.state_dict().values())
    memory = memory_needs(weights, model_bytes, settings, recipe.takes_gram)
    problem = ""
    try:
        check_memory(weights, model_bytes, settings, device, recipe.takes_gram)
    except DoesNotFitError as error:
        problem = str(error) if curvature else ""
    return Inspection(
        layers=_plans(recipe, target, weights),
        size=weights.size,
        count=make_budget("global", recipe.sparsities[0], [("", 0, weights.size)], torch.device("cpu")).total,
        blocks=len(blocks),
        widest=max(block.stop - block.start for block in blocks),
        memory=memory if curvature else {key: value for key, value in memory.items() if key.startswith("copies")},
        free=available_bytes(device),
        seconds=estimate_seconds(recipe, target, weights, device) if timed and curvature else {},
        staged=any(map(recipe.in_stages, recipe.methods)),
        problem=problem,
    )


def _plans(recipe: Recipe, target: Target, weights: PrunableWeights) -> tuple[LayerPlan, ...]:
    values = weights.flatten(target.model).abs().cpu()
    layers = [(layer.name, layer.offset, layer.size) for layer in weights.layers]
    pruned = make_budget(recipe.budget, recipe.sparsities[0], layers, torch.device("cpu")).lowest(values)
    counts = {layer.name: int(pruned[layer.columns].sum()) for layer in weights.layers}
    return tuple(
        LayerPlan(name, tuple(parameter.shape), parameter.numel(), counts.get(name))
        for name, parameter in target.model.named_parameters()
    )

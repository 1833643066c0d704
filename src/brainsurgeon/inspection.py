"""What a run would prune, and what it would take on this machine, found out before anything runs."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from .batches import Batch, SampleStream, batch_size, regroup
from .blocks import make_blocks
from .errors import BrainsurgeonError
from .gradients import collect_gradients
from .loss import BatchLoss, check_loss
from .mask import make_budget
from .memory import DoesNotFitError, available_bytes, check_memory, memory_needs
from .recipe import Recipe
from .sample_loss import BATCH, GRADIENT_BATCHES, MODERATE, ROUND_FLOPS, SEARCH_FLOPS, SampleLoss
from .settings import Settings
from .target import Target
from .weights import PrunableWeights, find_weights

PATIENCE = 2.0
"""Seconds that a measurement may take, once it has run twice."""
PROBE_ROWS = 64
DRAWS, STEPS, LADDER, SCALES = 25, 50, 6, 4
"""Masks that race after Algorithm 2, rounds of a search at most, masks compared in a round, scales tried."""
ALGEBRA = 1.5
"""All else (reading the gradients, sorting, solving) takes about half the time of the losses once more."""


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
    problem: str = ""


def inspect(recipe: Recipe, target: Target, timed: bool = True) -> Inspection:
    """Look at the model, and time a few gradients and losses where the method needs them and `timed` is set."""
    settings = recipe.settings()
    weights = find_weights(target.model, settings.include, settings.exclude)
    device = torch.device(settings.device or target.model.get_parameter(weights.names[0]).device)
    methods = recipe.make_methods()
    curvature = any(method.uses_curvature for method in methods.values())
    blocks = make_blocks(settings.blocks, weights, settings.num_gradients)
    model_bytes = sum(tensor.nbytes for tensor in target.model.state_dict().values())
    memory = memory_needs(weights, model_bytes, settings)
    problem = ""
    try:
        check_memory(weights, model_bytes, settings, device)
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
        seconds=_times(recipe, target, weights, device) if timed and curvature else {},
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


def _times(recipe: Recipe, target: Target, weights: PrunableWeights, device: torch.device) -> dict[str, float]:
    """Time a few gradients and a few losses, and multiply: what follows is rough, and said to be."""
    settings = recipe.settings()
    loss = BatchLoss(copy.deepcopy(target.model).to(device).eval().requires_grad_(False), target.loss)
    stream = SampleStream(target.data, torch.Generator().manual_seed(settings.seed), device, keep=1)
    batches = list(regroup(stream.take(max(8, PROBE_ROWS * settings.gradient_batch)), BATCH))
    check_loss(loss, batches[0])
    found = {"gradients": _time_of_gradients(loss, weights, batches, settings)}
    with torch.no_grad():
        batch = _median_time(lambda: loss(batches[0]), device) * BATCH / batch_size(batches[0])
    sample = SampleLoss(loss, weights, weights.flatten(loss.model), batches)
    samples = min(settings.loss_samples, _samples_in(target.data))
    for name, method in recipe.make_methods().items():
        evaluated = 0.0
        if getattr(method.selection, "uses_loss", False):
            evaluated += _batches_of_search(samples, sample.flops_per_batch())
        if getattr(method.update, "uses_loss", False):
            evaluated += _batches_of_update(samples, sample.flops_per_batch()) * (1 + len(method.rivals))
        if evaluated:
            found[name] = ALGEBRA * evaluated * batch * len(recipe.sparsities)
    return found


def _time_of_gradients(loss: BatchLoss, weights: PrunableWeights, batches: list[Batch], settings: Settings) -> float:
    """Collect a few gradients twice, as the run will: the first time warms up, as the run will have to."""

    def collect(rows: int) -> float:
        start = time.perf_counter()
        collect_gradients(loss, weights, batches, rows, settings.gradient_batch, settings.dtype)
        return time.perf_counter() - start

    rows = min(settings.num_gradients, sum(map(batch_size, batches)) // settings.gradient_batch)
    first, again = collect(rows), collect(rows)
    return max(first - again, 0.0) + again / rows * settings.num_gradients


def _samples_in(data: Any) -> float:
    """Return how many samples the data holds, infinity where it does not say."""
    data = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(data, Dataset):
        return len(data) if hasattr(data, "__len__") else math.inf
    try:
        return batch_size(data)
    except (BrainsurgeonError, TypeError):  # batches in an iterable
        return math.inf


def _first_round(candidates: int, judging: int, flops: float) -> int:
    return max(1, min(judging, int(ROUND_FLOPS / (flops * candidates))))


def _batches_of_update(samples: float, flops: float) -> float:
    """Return how many batches the line search for the update's scale, and the choice among rivals, look at."""
    judging = max(1, int(samples) // BATCH // 2)
    return SCALES * max(MODERATE, _first_round(2, judging, flops)) + 2 * judging


def _batches_of_search(samples: float, flops: float) -> float:
    """Return how many batches the sample loss is evaluated on by Algorithm 2 and a search, roughly and at most."""
    judging = max(1, int(samples) // BATCH // 2)

    def race(candidates: int) -> float:
        """All start on a few batches, half of them go on to twice as many, …."""
        batches, alive, total = _first_round(candidates, judging, flops), candidates, 0.0
        seen = 0
        while alive > 1 or not seen:
            total += alive * (batches - seen)
            if batches >= judging:
                break
            alive, seen, batches = (alive + 1) // 2, batches, min(2 * batches, judging)
        return total

    gradient = max(GRADIENT_BATCHES, min(judging, int(ROUND_FLOPS / (flops * 3))))
    rounds = max(8, min(STEPS, int(SEARCH_FLOPS / (3 * gradient * flops))))
    return race(DRAWS) + rounds * (3 * gradient + race(LADDER))


def _median_time(work: Callable[[], object], device: torch.device) -> float:
    """Run something a few times, the first not counted, and return the median of its times."""
    work()
    times: list[float] = []
    while len(times) < 2 or (sum(times) < PATIENCE and len(times) < 9):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]

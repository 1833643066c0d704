"""How long a run will take on this machine: a few of its gradients and losses are timed, and multiplied."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable

import torch

from brainsurgeon.app.recipe import Recipe
from brainsurgeon.app.target import Target
from brainsurgeon.engine.selection.recentred_search import LEAST_STEPS, MOST_STEPS
from brainsurgeon.engine.update.scaled import SCALES
from brainsurgeon.network.checks import check_loss
from brainsurgeon.network.footprint import samples_in
from brainsurgeon.network.gradients import collect_gradients
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.match import Match
from brainsurgeon.network.sample_loss import (
    BATCH,
    DECIDING,
    GRADIENT_BATCHES,
    MODERATE,
    ROUND_FLOPS,
    SEARCH_FLOPS,
    SampleLoss,
)
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.one_shot import Examining, OneShot
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.samples.batches import Batch, SampleStream, batch_size, regroup

PATIENCE = 2.0
"""Seconds that a measurement may take, once it has run twice."""
PROBE_ROWS = 64
DRAWS, LADDER = 17, 4
"""Masks that race after Algorithm 2, masks compared in a round of a search."""
ALGEBRA = 1.5
"""All else (reading the gradients, sorting, solving) takes about half the time of the losses once more."""


def estimate_seconds(
    recipe: Recipe, target: Target, weights: PrunableWeights, device: torch.device
) -> dict[str, float]:
    """Return the seconds of each part of a run, from a few gradients and losses timed here: rough, and said to be.

    Of a run in stages only the gradients can be foreseen.
    """
    methods = recipe.make_methods()
    shot = next((m for m in methods.values() if isinstance(m, OneShot) and m.uses_curvature), None)
    settings = shot.examining if shot else Examining()
    loss = BatchLoss(copy.deepcopy(target.model).to(device).eval().requires_grad_(False), target.loss)
    stream = SampleStream(target.data, torch.Generator().manual_seed(recipe.seed), device, keep=1)
    batches = list(regroup(stream.take(max(8, PROBE_ROWS * settings.gradient_batch)), BATCH))
    check_loss(loss, batches[0])
    measured, labelled = loss, batches
    if isinstance(target.loss, Match):
        generator = torch.Generator().manual_seed(recipe.seed)
        measured, labelled = target.loss.pulled(loss.model), list(target.loss.drawn(batches, generator))
    warming, row = _time_of_gradients(measured, weights, labelled, settings)
    found = {"gradients": warming}
    with torch.no_grad():
        batch = _median_time(lambda: loss(batches[0]), device) * BATCH / batch_size(batches[0])
    sample = SampleLoss(loss, weights, weights.flatten(loss.model), batches)
    if shot:
        available = samples_in(target.data) // settings.gradient_batch
        found["gradients"] += row * min(settings.num_gradients, available)
    for name, method in methods.items():
        if isinstance(method, Staged | Gradual | Auto):
            taken = float(method.gradients if isinstance(method, Auto) else method.max_gradients)
            if isinstance(method, Staged):
                taken = min(taken, samples_in(target.data) * method.schedule.total)
            seconds = min(row / settings.gradient_batch * taken, method.max_seconds or math.inf)
            found[f"{name}, at most" if method.max_seconds else name] = seconds * len(recipe.sparsities)
        elif isinstance(method, OneShot) and (
            evaluated := _evaluated(method, samples_in(target.data), sample.flops_per_batch())
        ):
            found[name] = ALGEBRA * evaluated * batch * len(recipe.sparsities)
    return found


def _evaluated(method: OneShot, available: float, flops: float) -> float:
    """Return how many batches a one-shot method looks at."""
    samples, evaluated = min(method.loss_samples, available), 0.0
    if getattr(method.selection, "uses_loss", False):
        evaluated += _batches_of_search(samples, flops)
    if getattr(method.update, "uses_loss", False):
        evaluated += _batches_of_update(samples, flops) * (1 + len(method.rivals))
    return evaluated


def _time_of_gradients(
    loss: BatchLoss, weights: PrunableWeights, batches: list[Batch], settings: Examining
) -> tuple[float, float]:
    """Collect a few gradients twice, as the run will; return the seconds of warming up, and those of a row."""

    def collect(rows: int) -> float:
        start = time.perf_counter()
        collect_gradients(loss, weights, batches, rows, settings.gradient_batch, settings.dtype)
        return time.perf_counter() - start

    rows = min(settings.num_gradients, sum(map(batch_size, batches)) // settings.gradient_batch)
    first, again = collect(rows), collect(rows)
    return max(first - again, 0.0), again / rows


def _first_round(candidates: int, judging: int, flops: float) -> int:
    return max(1, min(judging, int(ROUND_FLOPS / (flops * candidates))))


def _race(candidates: int, judging: int, flops: float, least: int = 1) -> float:
    """Return the batches of a race: all start on a few, half of them go on to twice as many, …."""
    batches, alive, total = max(_first_round(candidates, judging, flops), min(least, judging)), candidates, 0.0
    seen = 0
    while alive > 1 or not seen:
        total += alive * (batches - seen)
        if batches >= min(DECIDING, judging):
            break
        alive, seen, batches = (alive + 1) // 2, batches, min(2 * batches, judging)
    return total


def _batches_of_update(samples: float, flops: float) -> float:
    """Return how many batches the line search for the update's scale, and the choice among rivals, look at."""
    judging = max(1, int(samples) // BATCH // 2)
    return _race(len(SCALES), judging, flops, MODERATE // len(SCALES)) + MODERATE


def _batches_of_search(samples: float, flops: float) -> float:
    """Return how many batches the sample loss is evaluated on by Algorithm 2 and a search, roughly and at most."""
    judging = max(1, int(samples) // BATCH // 2)
    gradient = max(GRADIENT_BATCHES, min(judging, int(ROUND_FLOPS / (flops * 3))))
    rounds = max(LEAST_STEPS, min(MOST_STEPS, int(SEARCH_FLOPS / (3 * gradient * flops))))
    return _race(DRAWS, judging, flops) + rounds * (3 * gradient + _race(LADDER, judging, flops))


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

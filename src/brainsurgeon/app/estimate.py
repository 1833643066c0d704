"""How long a run will take on this machine: a few of its gradients and losses are timed, and multiplied."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cached_property

import torch

from brainsurgeon.app.recipe import Recipe
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.selection.recentred_search import LEAST_STEPS, MOST_STEPS
from brainsurgeon.engine.update.scaled import SCALES
from brainsurgeon.network.checks import check_loss
from brainsurgeon.network.footprint import samples_in
from brainsurgeon.network.gradients import collect_gradients
from brainsurgeon.network.linear_maps import linear_maps
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
from brainsurgeon.pruning.auto.candidates import RIVALS, ROWS, SMALL, by_fisher, is_sure
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.gradual.timing import seconds_of_training
from brainsurgeon.pruning.judging import ENOUGH
from brainsurgeon.pruning.layerwise.forecast import forecast
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.one_shot import Examining, OneShot
from brainsurgeon.pruning.path import trained
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.samples.batches import Batch, SampleStream, batch_size, is_tokens, regroup
from brainsurgeon.samples.held_out import MOST_READ, held_out_of

PATIENCE = 2.0
"""Seconds that a measurement may take, once it has run twice."""
PROBE_ROWS = 64
DRAWS, LADDER = 17, 4
"""Masks that race after Algorithm 2, masks compared in a round of a search."""
ALGEBRA = 1.5
"""All else (reading the gradients, sorting, solving) takes about half the time of the losses once more."""


def estimate_seconds(recipe: Recipe, surgery: Surgery) -> dict[str, float]:
    """Return the seconds of each part of a run, from gradients, losses and steps timed here: rough, and said to be.

    Of a run in stages only the gradients can be foreseen.
    """
    each = _Timed(recipe, surgery)
    sparsity = recipe.sparsity_of(recipe.sparsities[0], surgery.weights.parts)
    found: dict[str, float] = {}
    for name, asked in recipe.make_methods().items():
        method = trained(asked, surgery, each.batches[0]) if isinstance(asked, Auto) else asked
        limit = getattr(asked, "max_seconds", None) or math.inf
        if isinstance(method, Gradual):
            seconds = seconds_of_training(method, surgery, sparsity, recipe.budget)
            if method.first_cut is not None or (isinstance(asked, Auto) and not each.is_sure(asked)):
                seconds += _by_layers(surgery, sparsity, method.pattern, recipe)
        elif isinstance(method, Staged):
            seconds = each.seconds_of_gradients(min(method.max_gradients, each.samples * method.schedule.total))
        elif isinstance(method, Auto):
            seconds = _at_once(method, surgery, sparsity, recipe, each)
        elif isinstance(method, OneShot):
            if method.uses_curvature:
                found["gradients"] = each.seconds_of_rows(each.settings.num_gradients)
            seconds = each.seconds_of_losses(method)
        else:
            continue
        shared = recipe.sweep and (limit < math.inf or isinstance(method, Gradual | Staged))
        runs = 1 if shared else len(recipe.sparsities)  # the legs of a sweep share what one run may take
        if seconds:
            found[name if limit == math.inf else f"{name}, at most"] = min(seconds, limit) * runs
    return found


def _at_once(method: Auto, surgery: Surgery, sparsity: float | None, recipe: Recipe, each: _Timed) -> float:
    """Return the seconds of `auto` where nothing is trained: layer by layer and, for small networks, a search."""
    seconds = _by_layers(surgery, sparsity, method.pattern, recipe)
    if surgery.weights.size <= SMALL:
        seconds += each.seconds_of_rows(ROWS) + each.seconds_of_losses(by_fisher(ROWS, RIVALS))
    return seconds


def _by_layers(surgery: Surgery, sparsity: float | None, pattern: Pattern, recipe: Recipe) -> float:
    """Return the seconds of a layer-wise cut, 0 where there is no layer for it."""
    if not linear_maps(surgery.original, surgery.weights.names):
        return 0.0
    return sum(forecast(surgery, sparsity, Layerwise(pattern=pattern), recipe.budget).seconds.values())


class _Timed:
    """What is timed on a few samples, each when it is first asked for."""

    def __init__(self, recipe: Recipe, surgery: Surgery):
        shots = [m for m in recipe.make_methods().values() if isinstance(m, OneShot) and m.uses_curvature]
        self.settings = shots[0].examining if shots else Examining()
        self.recipe, self.surgery = recipe, surgery
        self.loss = surgery.batch_loss
        stream = SampleStream(surgery.data, torch.Generator().manual_seed(recipe.seed), surgery.device, keep=1)
        self.batches = list(regroup(stream.take(max(8, PROBE_ROWS * self.settings.gradient_batch)), BATCH))
        check_loss(self.loss, self.batches[0])
        self.samples = samples_in(surgery.data)

    def seconds_of_rows(self, count: float) -> float:
        """Return the seconds of so many rows of gradients, or of as many as there are samples for."""
        warming, row = self._gradients
        return warming + row * min(count, self.samples // self.settings.gradient_batch)

    def seconds_of_gradients(self, samples: float) -> float:
        """Return the seconds of the gradients of so many samples, some of them asked again."""
        return self._gradients[1] / self.settings.gradient_batch * samples

    def is_sure(self, method: Auto) -> bool:
        """Say whether `auto` tries nothing beside training."""
        few = held_out_of(int(min(self.samples, method.max_samples or MOST_READ))) < ENOUGH
        return is_sure(method.gradients, few, is_tokens(self.batches[0]), self.surgery.weights.size)

    @cached_property
    def _gradients(self) -> tuple[float, float]:
        measured, labelled, asked = self.loss, self.batches, self.surgery.loss
        if isinstance(asked, Match):
            generator = torch.Generator().manual_seed(self.recipe.seed)
            measured, labelled = asked.pulled(self.loss.model), list(asked.drawn(self.batches, generator))
        return _time_of_gradients(measured, self.surgery.weights, labelled, self.settings)

    def seconds_of_losses(self, method: OneShot) -> float:
        """Return the seconds of the losses that a one-shot method asks for, and of its algebra."""
        weights = self.surgery.weights
        sample = SampleLoss(self.loss, weights, weights.flatten(self.loss.model), self.batches)
        evaluated = _evaluated(method, self.samples, sample.flops_per_batch())
        return ALGEBRA * evaluated * self._batch if evaluated else 0.0

    @cached_property
    def _batch(self) -> float:
        with torch.no_grad():
            seconds = _median_time(lambda: self.loss(self.batches[0]), self.surgery.device)
        return seconds * BATCH / batch_size(self.batches[0])


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

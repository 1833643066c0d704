"""What is tried, the cheap first, and how much of the time each may take."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from brainsurgeon.distributed import agreed
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.selection import Magnitude, RecentredSearch, WoodFisher
from brainsurgeon.engine.update import Joint, Scaled
from brainsurgeon.network.gradients import mean_squares
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.gradual.run import usual_batch
from brainsurgeon.pruning.judging import seconds_a_sample
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.samples.batches import is_tokens

if TYPE_CHECKING:
    from brainsurgeon.pruning.auto.run import AutoRun

SMALL = 2_000_000
"""A network of at most so many weights is searched by its Fisher matrix too."""
LARGE = 10_000_000
"""A network of at least so many weights is cut layer by layer and then trained, too, unless steps are very many."""
LONG = 2000
"""With so many steps on other data than texts even a large network is better pruned step by step (docs/auto.md)."""
FEW_STEPS, FEW_SAMPLES_STEPS = 150, 400
"""With fewer steps, of many samples and of few, there are too few to prune step by step: a cut is trained instead."""
SURE = 400
"""With so many steps of many samples pruning while training is known to be ahead of any cut at once (docs/auto.md)."""
ROWS, LEAST_ROWS = 1000, 40
"""Gradients of the Fisher matrix, and how many are too few to be worth a candidate."""
MOST_ENTRIES = 500_000_000
"""Numbers that the gradients of a candidate may be where time is short."""
TIMED = 8
"""Gradients that are timed."""
JUDGED = 1000
"""Samples that its masks are compared on where time is short."""
SEARCH_PASSES = 9000
"""Forward passes of a search: draws, and six rounds of a gradient and a race."""
HURRIED = 20
"""With time for fewer epochs than this, what layer-wise pruning has cut is trained too."""
LAYERED = 0.7
"""The share of the time left that layer-wise pruning may take: it is the best of what is found without training."""
LAYER_WORK, LAYER_PASSES = 700, 8
"""Operations that the layer solver takes for each weight and input of its row; forward passes of a calibration."""

MOSTLY = 0.75
"""The share of the weights that must be of plain linear maps for a layer-wise cut to be worth training."""
RIVALS = (Magnitude(), WoodFisher())
"""Masks that the search is compared with where there is time."""

STEP_PASSES = 5
"""Forward passes that a sample's step of training is about as long as, the dense network's answer among them."""

Method = OneShot | Layerwise | Gradual | Staged


@dataclass(frozen=True)
class Candidate:
    """A method to try, and the share of the time left that it may take where time is limited."""

    name: str
    method: Method
    share: float = 1.0

    def within(self, pattern: Pattern) -> Candidate:
        """Return the same with masks of a pattern."""
        return replace(self, method=replace(self.method, pattern=pattern))


def candidates(run: AutoRun) -> Iterator[Candidate]:
    """Yield what is tried without a limit of time; one that trains comes last, because it is the best where it fits."""
    layered, mostly = _layered(run)
    size, trains = run.surgery.weights.size, bool(run.method.gradients)
    texts, seen = is_tokens(run.held_out[0]), run.outputs is not None
    if layered and not (seen and is_sure(run.method.gradients, run.few, texts, size)):
        yield Candidate("layerwise", Layerwise())
    if size <= SMALL and not trains:
        yield Candidate("cbs", by_fisher(min(ROWS, run.samples.size), RIVALS))
    if not mostly and (trains or size > SMALL):
        yield Candidate("mp", OneShot(Magnitude(), name="mp"))
    yield from _trained(run, mostly)


def _layered(run: AutoRun) -> tuple[bool, bool]:
    """Say whether there are plain linear maps, and whether most of the weights are theirs, embeddings left aside."""
    model, weights = run.surgery.original, run.surgery.weights
    maps = {layer.name: layer.weight.numel() for layer in linear_maps(model, weights.names)}
    tables = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    size = sum(layer.size for layer in weights.layers if layer.name not in tables)
    return bool(maps), bool(maps) and sum(maps.values()) >= MOSTLY * size


def is_sure(gradients: int, few: bool, texts: bool, size: int) -> bool:
    """Say whether pruning while training needs nothing beside it: samples and steps are many, weights not too many."""
    return not few and size < LARGE and gradients // usual_batch(texts) >= SURE


def is_cut_first(size: int, steps: int, texts: bool) -> bool:
    """Say whether a network is so large, for its steps, that a cut at once may be the better beginning."""
    return size >= LARGE and (texts or steps < LONG)


def candidates_in_time(run: AutoRun) -> Iterator[Candidate]:
    """Yield what is tried within a limit: what is found at once, then one-shot methods that fit, then training.

    What would not be finished is not begun: training needs the time.
    """
    layered, mostly = _layered(run)
    trains = bool(run.method.gradients)
    yield Candidate("mp", OneShot(Magnitude(), name="mp"))
    if layered:
        samples = _samples_in_time(run, LAYERED, 0.3 if trains else 0.4)
        if samples:
            yield Candidate("layerwise", Layerwise(max_samples=samples), LAYERED)
        else:
            run.notes.append("there is no time for layerwise, which is left out")
    rows = _rows_in_time(run, 0.2 if trains else 0.4)
    if rows >= min(LEAST_ROWS, run.samples.size):
        search = by_fisher(rows, (), JUDGED)
        yield Candidate("mp+cbs-u", replace(search, selection=Magnitude(), name="mp+cbs-u"), 0.4)
        share = 0.3 if trains else 0.5
        passes = SEARCH_PASSES * seconds_a_sample(run.surgery.batch_loss, run.held_out[0])
        if agreed(passes < share * run.task.clock.left):
            yield Candidate("cbs", search, share)  # from the same gradients
        else:
            run.notes.append("there is no time for the search of cbs, which is left out")
        run.part._examined.clear()
    else:
        run.notes.append("there is no time for the gradients of cbs, which is left out")
    yield from _trained(run, mostly)


def by_fisher(rows: int, rivals: tuple[Any, ...], judged: int = 5000) -> OneShot:
    """Return the candidate that searches by the Fisher matrix of so many gradients."""
    return OneShot(RecentredSearch(), Scaled(Joint()), rivals, "cbs", num_gradients=rows, loss_samples=judged)


def _trained(run: AutoRun, layered: bool) -> Iterator[Candidate]:
    gradients, size = run.method.gradients, run.surgery.weights.size
    if gradients and run.outputs is None:
        yield Candidate("staged", Staged(max_gradients=gradients))
        return
    common: dict[str, Any] = {"repair": run.method.repair, "augment": run.method.augment}
    texts = is_tokens(run.held_out[0])
    steps = gradients // usual_batch(texts)
    few = steps < (FEW_SAMPLES_STEPS if run.few else FEW_STEPS)
    large = is_cut_first(size, steps, texts)
    if gradients and layered and (large or few or _is_hurried(run)):
        alone = few or (texts and large)
        share = gradients if alone else -(-gradients // 2)
        method = Gradual("auto", first_cut=Layerwise(), max_gradients=share, **common)
        yield Candidate("layerwise, trained", method, 1.0 if alone else 0.5)
        gradients -= share
    if gradients:
        yield Candidate("gradual", Gradual("auto", max_gradients=gradients, **common))


def _is_hurried(run: AutoRun) -> bool:
    """Say whether there is a cut, and no time to prune step by step: a cut that is there is repaired at once."""
    if run.cut is None or not run.task.clock.is_limited:
        return False
    epoch = 3 * run.samples.size * seconds_a_sample(run.surgery.batch_loss, run.held_out[0])
    return bool(agreed(run.task.clock.left < HURRIED * epoch))


def seconds_of(run: AutoRun, chosen: list[Candidate]) -> float:
    """Return about how many seconds candidates will take, by the time of a forward pass."""
    passes = work = 0.0
    for method in (candidate.method for candidate in chosen):
        if isinstance(method, Gradual | Staged):
            passes += STEP_PASSES * method.max_gradients
        if isinstance(method, Layerwise):
            passes += LAYER_PASSES * min(method.max_samples, run.samples.size)
            work += _layer_work(run)
        if isinstance(method, OneShot) and method.uses_curvature:
            rows = min(ROWS, run.samples.size)
            passes += SEARCH_PASSES + STEP_PASSES * rows
            work += _algebra(run) * rows**2
    each = seconds_a_sample(run.surgery.batch_loss, run.held_out[0]) if passes else 0.0
    return float(agreed(passes * each + (work / _flops() if work else 0.0)))


def _rows_in_time(run: AutoRun, share: float) -> int:
    """Return how many gradients, with the algebra on them, fit in a share of the time left; a few are timed."""
    surgery, seconds = run.surgery, share * run.task.clock.left
    size, few = surgery.weights.size, min(TIMED, run.samples.size)
    begun = time.monotonic()
    mean, *_ = mean_squares(surgery.batch_loss, surgery.weights, run.samples.draw(few, 0), few)
    float(mean[0])  # a GPU has been waited for when the number is here
    each = (time.monotonic() - begun) / few
    algebra = _algebra(run) / _flops()
    fitting = (math.sqrt(each**2 + 4 * algebra * max(seconds, 0.0)) - each) / (2 * algebra)
    return min(ROWS, run.samples.size, MOST_ENTRIES // size, int(agreed(fitting)))


def _samples_in_time(run: AutoRun, share: float, passing: float) -> int:
    """Return how many samples layer-wise pruning can calibrate on in a share of the time left, 0 where it cannot.

    `passing` is the share that their passes may take.
    """
    left = run.task.clock.left
    seconds = agreed(min(passing * left, share * left - _layer_work(run) / _flops()))
    if seconds <= 0:
        return 0
    fitting = int(seconds / (LAYER_PASSES * agreed(seconds_a_sample(run.surgery.batch_loss, run.held_out[0]))))
    return 0 if fitting < LEAST_ROWS else min(Layerwise().max_samples, fitting)


def _algebra(run: AutoRun) -> float:
    """Return the operations of a search for each of K² pairs of gradients: Gram matrices of what each rival keeps."""
    size = run.surgery.weights.size
    return 2 * 3 * max(0.1, 1 - run.task.total / size) * size


def _layer_work(run: AutoRun) -> float:
    """Return the operations of the layer solver."""
    maps = linear_maps(run.surgery.original, run.surgery.weights.names)
    return LAYER_WORK * sum(layer.weight.numel() * layer.rows(layer.weight).shape[-1] for layer in maps)


def _flops() -> float:
    """Return about how many floating-point operations a second this machine does in a product of matrices."""
    matrix, rounds = torch.ones(512, 512), 4
    matrix @ matrix
    begun = time.monotonic()
    for _ in range(rounds):
        matrix @ matrix
    return float(2 * 512**3 * rounds / max(time.monotonic() - begun, 1e-9))

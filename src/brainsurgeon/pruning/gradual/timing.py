"""How long pruning while training will take on this device: a few of its steps are taken on a copy, and multiplied."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.events import silent
from brainsurgeon.network.footprint import samples_in
from brainsurgeon.pruning.gradual.run import usual_batch
from brainsurgeon.pruning.gradual.views import count_views
from brainsurgeon.pruning.judging import ENOUGH
from brainsurgeon.samples.batches import Batch, Batches, as_batches, first, is_tokens, moved
from brainsurgeon.samples.draws import generator_of
from brainsurgeon.samples.held_out import FEWEST, MOST_READ, held_out_of

if TYPE_CHECKING:
    from brainsurgeon.pruning.gradual.method import Gradual
    from brainsurgeon.pruning.surgery import Surgery

WARM, PATIENCE, MOST = 2, 0.3, 50
"""Steps that are taken first, to know how many can be timed; the seconds that these may take, and how many there are at
most."""
TINY = 1e-9
"""The learning rate of the steps that are timed: none of them diverges."""


def seconds_of_training(
    method: Gradual, surgery: Surgery, sparsity: float | None, budget: str | dict[str, float] = "global"
) -> float:
    """Return about how many seconds the steps of a method will take, the search for its learning rate among them.

    Whole steps are timed: samples are drawn, changed and mixed, and the dense network answers, as they will be in the
    run, with one cut among them. A GPU that records its steps will be faster.
    """
    most = FEWEST + 2 * _size(method, texts=False)
    batches = list(first(as_batches(surgery.data, generator_of(surgery.seed)), most))
    batch = moved(batches[0], surgery.device)
    size, part = _size(method, is_tokens(batch)), copy.copy(surgery)
    part.data, part._callback, part._progress = Batches(batches), silent, False
    timed = replace(_as_in_the_run(method, surgery, batch), batch_size=size)

    def seconds(steps: int) -> float:
        chosen = replace(timed, max_gradients=steps * size)
        return part.prune(sparsity, chosen, budget=budget).seconds["training"] / steps

    each = seconds(WARM)
    more = int(PATIENCE / max(each, 1e-9))
    if more > WARM:  # the first of anything is slow
        each = seconds(min(more, MOST))
    return each * method.max_gradients / size


def _size(method: Gradual, texts: bool) -> int:
    return min(method.batch_size or usual_batch(texts), method.max_gradients)


def _as_in_the_run(method: Gradual, surgery: Surgery, batch: Batch) -> Gradual:
    """Return the method as it is with all samples: with the few that are timed it would choose as for few."""
    short = replace(
        method,
        plan=replace(method.plan, cuts=1),
        first_cut=None,
        learning_rate=TINY,
        doubt=0.0,
        max_seconds=None,
        max_samples=None,
    )
    if held_out_of(int(min(samples_in(surgery.data), method.max_samples or MOST_READ))) < ENOUGH:
        return short
    views = count_views(method, surgery, batch, few=False)
    lesson = method.lesson(few=False, normalised=False, views=views)
    return replace(
        short,
        views=views,
        distil=lesson.share,
        temperature=lesson.temperature,
        features=lesson.features,
        mix=method.mix or False,  # pictures that are mixed are warped too, as they will be
    )

"""The stages, refits and trainings of a run, one after the other, within its limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from brainsurgeon.engine.budget import Budget
from brainsurgeon.events.clock import Clock, TimeUp
from brainsurgeon.pruning.staged.pacing import Pacing
from brainsurgeon.pruning.staged.state import State, Store

PATIENCE = 3
"""After so many refits in a row that led nowhere the others are left out."""


def run_stages(
    state: State,
    final: Budget,
    stage: Callable[[State, Budget], State],
    train: Callable[[State], State],
    pacing: Pacing,
    clock: Clock,
    store: Store | None,
    notes: list[str],
) -> State:
    """Go through all stages, refits and trainings from a state on, until they are done or time is up."""
    schedule = pacing.schedule
    if schedule.examinations_from(state.number + 1):
        pacing.share(replace(state, number=state.number + 1))  # refuse too few gradients before any work
    resumed, paces, before = state.number, list[float](), time.monotonic()
    for number in range(state.number + 1, schedule.total + 1):
        training = schedule.is_training(number)
        if state.idle >= PATIENCE and not training:
            continue
        now = time.monotonic()
        if number - 1 > resumed and not schedule.is_training(number - 1):
            paces.append(now - before)
        before = now
        progress = pacing.progress(number, state, clock.left, paces)
        if progress is None:
            notes.append(f"time was up: {state.number} of {schedule.total} stages and refits were done")
            break
        ahead = replace(state, number=number, progress=progress)
        try:
            state = train(ahead) if training else stage(ahead, final)
        except TimeUp:
            notes.append(f"time was up within stage {number} of {schedule.total}")
            break
        if store:
            store.save(state)
    return _completed(state, final, notes)


def _completed(state: State, final: Budget, notes: list[str]) -> State:
    """Remove what is still to go by magnitude, where time was up before the last stage."""
    missing = final.total - int(state.pruned.sum())
    if not missing:
        return state
    notes.append(f"the last {missing} weights were removed by magnitude")
    pruned = final.lowest(state.values.abs().masked_fill(state.pruned, -1.0))
    return replace(state, pruned=pruned, values=state.values.masked_fill(pruned, 0.0), progress=1.0)

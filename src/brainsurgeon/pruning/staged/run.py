"""The stages, refits and trainings of a run, one after the other, within its limits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from brainsurgeon.engine.budget import Budget
from brainsurgeon.pruning.staged.pacing import Pacing
from brainsurgeon.pruning.staged.state import State, Store

PATIENCE = 3
"""After so many refits in a row that led nowhere the others are left out."""


def run_stages(
    state: State,
    final: Budget,
    stage: Callable[[State, Budget], State],
    train: Callable[[State, float], State],
    pacing: Pacing,
    store: Store | None,
    notes: list[str],
) -> State:
    """Go through all stages, refits and trainings from a state on; `train` is told when time will be up."""
    schedule = pacing.schedule
    if schedule.examinations_from(state.number + 1):
        pacing.share(replace(state, number=state.number + 1))  # refuse too few gradients before any work
    resumed, paces = state.number, list[float]()
    started = before = time.monotonic()
    deadline = math.inf if pacing.max_seconds is None else started + pacing.max_seconds
    for number in range(state.number + 1, schedule.total + 1):
        training = schedule.is_training(number)
        if state.idle >= PATIENCE and not training:
            continue
        now = time.monotonic()
        if number - 1 > resumed and not schedule.is_training(number - 1):
            paces.append(now - before)
        before = now
        progress = pacing.progress(number, state, now - started, paces)
        if progress is None:
            notes.append(f"time was up: {state.number} of {schedule.total} stages and refits were done")
            break
        state = replace(state, number=number, progress=progress)
        state = train(state, deadline) if training else stage(state, final)
        if store:
            store.save(state)
    return state

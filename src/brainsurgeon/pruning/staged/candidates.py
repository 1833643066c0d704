"""How the kept weights move at the end of a stage: by d_U + s·d_F + μ·d_last, for several s and μ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from brainsurgeon.engine.problem import Problem, Update
from brainsurgeon.engine.update import Joint
from brainsurgeon.pruning.staged.state import State

LENGTHS = (1.0, 0.25, 4.0)
MOMENTA = (0.0, 0.7)


def moves(
    update: Update, problem: Problem, slopes: dict[str, Tensor], pruned: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the update for what is removed, and each slope's Newton step."""
    repair, *newtons = problem.quadratic.moves(pruned, list(slopes.values()))
    if not isinstance(update, Joint):
        repair = update(problem, pruned).double()
    return repair, dict(zip(slopes, newtons, strict=True))


def candidates(state: State, repair: Tensor, newtons: dict[str, Tensor]) -> Iterator[State]:
    """Yield where the stage may end: after the update alone, and after steps of several lengths along each slope."""
    start, last = state.values.double(), state.last_step.double()

    def moved(end: State, step: Tensor) -> State:
        values = (start + step).to(state.values.dtype).masked_fill(state.pruned, 0.0)
        return replace(end, values=values, last_step=(values - state.values).masked_fill(state.pruned, 0.0))

    yield moved(state.shortened(newtons, LENGTHS[1]), repair)
    momenta = MOMENTA if bool(state.last_step.any()) else MOMENTA[:1]
    for name, newton in newtons.items():
        for end in (state.stretched(name, factor) for factor in LENGTHS):
            for momentum in momenta:
                step = repair + end.length(name) * newton + momentum * last
                yield moved(end.choosing(momentum=momentum), step)

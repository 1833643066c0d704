"""How the kept weights move at the end of a stage: by d_U + s·d_F + μ·d_last, for several s and μ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from .methods import Method, Update
from .problem import Problem
from .stand import Stand
from .update import Joint, Keep, Scaled

LENGTHS = (1.0, 0.25, 4.0)
MOMENTA = (0.0, 0.7)


def moves_weights(method: Method) -> bool:
    """Say whether a method changes the weights that it keeps."""
    return not isinstance(_update(method), Keep)


def _update(method: Method) -> Update:
    return method.update.update if isinstance(method.update, Scaled) else method.update


def moves(
    method: Method, problem: Problem, slopes: dict[str, Tensor], pruned: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the update for what is removed, and each slope's Newton step."""
    update = _update(method)
    repair, *newtons = problem.quadratic.moves(pruned, list(slopes.values()))
    if not isinstance(update, Joint):
        repair = update(problem, pruned).double()
    return repair, dict(zip(slopes, newtons, strict=True))


def steps(stand: Stand, repair: Tensor, newtons: dict[str, Tensor]) -> Iterator[Stand]:
    """Yield where the stage may end: after the update alone, and after steps of several lengths along each slope."""
    start, last = stand.values.double(), stand.drift.double()

    def moved(end: Stand, step: Tensor) -> Stand:
        values = (start + step).to(stand.values.dtype).masked_fill(stand.pruned, 0.0)
        return replace(end, values=values, drift=(values - stand.values).masked_fill(stand.pruned, 0.0))

    yield moved(stand.shortened(newtons, LENGTHS[1]), repair)
    momenta = MOMENTA if bool(stand.drift.any()) else MOMENTA[:1]
    for name, newton in newtons.items():
        for end in (stand.stretched(name, factor) for factor in LENGTHS):
            for momentum in momenta:
                step = repair + end.reach(name) * newton + momentum * last
                yield moved(replace(end, momentum=momentum), step)

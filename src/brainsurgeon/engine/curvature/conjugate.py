"""Preconditioned conjugate gradients, for systems too large to factor."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from brainsurgeon.events.clock import pulse

TOLERANCE = 3e-4
MOST_ITERATIONS = 300

Operator = Callable[[Tensor], Tensor]


def conjugate_gradients(
    product: Operator,
    b: Tensor,
    precondition: Operator,
    tolerance: float = TOLERANCE,
    start: Tensor | None = None,
) -> tuple[Tensor, str | None]:
    """Solve Hx = b to a relative residual, from a guess if there is one; return x, and a note if it was not reached."""
    x = torch.zeros_like(b) if start is None else start.clone()
    residual = b.clone() if start is None else b - product(x)
    goal = tolerance * float(b.norm())
    if goal == 0.0:
        return torch.zeros_like(b), None
    if float(residual.norm()) <= goal:
        return x, None
    scaled = precondition(residual)
    direction, energy = scaled, residual @ scaled
    for _ in range(MOST_ITERATIONS):
        pulse()
        image = product(direction)
        length = energy / (direction @ image)
        x += length * direction
        residual -= length * image
        if float(residual.norm()) <= goal:
            return x, None
        scaled = precondition(residual)
        energy, before = residual @ scaled, energy
        direction = scaled + (energy / before) * direction
    reached = float(residual.norm() / b.norm())
    return x, f"the update was solved to a relative residual of {reached:.1e} only (asked for {tolerance:.0e})"

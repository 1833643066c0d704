"""A Cholesky factor that says so when it had to be repaired."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError

RAISE = 10.0
TRIES = 8


@dataclass(frozen=True)
class Factor:
    """LLᵀ = A + (scale·damping) I, with the damping that was used in the end."""

    lower: Tensor
    damping: float

    def solve(self, b: Tensor) -> Tensor:
        """Solve for one vector."""
        return torch.cholesky_solve(b.unsqueeze(1), self.lower).squeeze(1)


def factorise(matrix: Tensor, damping: float, scale: float, notes: list[str]) -> Factor:
    """Factor A + scale·λ·I from the lower triangle of A, raising λ tenfold until it succeeds, and noting it.

    The matrix is overwritten.
    """
    used, shifted = damping, 0.0
    for _ in range(TRIES):
        matrix.diagonal().add_(scale * used - shifted)
        shifted = scale * used
        lower, info = torch.linalg.cholesky_ex(matrix)
        if int(info) == 0 and bool(torch.isfinite(lower.diagonal()).all()):
            if used != damping:
                notes.append(f"damping raised from {damping:g} to {used:g}: the curvature was not positive definite")
            return Factor(lower, used)
        used *= RAISE
    raise BrainsurgeonError(
        f"the curvature could not be factored, even with the damping raised from {damping:g} to {used:g}: "
        "the gradients are too large or not finite; check the loss, or give a larger damping"
    )

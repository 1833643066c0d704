"""Curvature: what every search and update asks of a Hessian H, and never the N×N matrix itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from brainsurgeon.engine.curvature.fisher import Fisher
from brainsurgeon.engine.curvature.gram import Gram
from brainsurgeon.engine.curvature.reordered import Reordered
from brainsurgeon.engine.curvature.undamped import Undamped

__all__ = ["Curvature", "Fisher", "Gram", "Reordered", "Undamped"]


class Curvature(Protocol):
    """A positive definite n×n matrix H, known through its actions. Vectors are in float64."""

    notes: list[str]
    """What had to be repaired, such as a raised damping, in words for the user."""

    @property
    def size(self) -> int:
        """The number n of weights."""

    def renewed(self) -> Curvature:
        """Return the same matrix without a memory of what it was asked, such as starts for the next solve."""

    def product(self, x: Tensor) -> Tensor:
        """H x."""

    def energy(self, steps: Tensor) -> Tensor:
        """dᵀHd for each column d of an n×m matrix."""

    def diagonal(self) -> Tensor:
        """Return the n entries H_ii."""

    def submatrix(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the few entries H_ij with i in `rows` and j in `columns`."""

    def solve(self, b: Tensor) -> Tensor:
        """H⁻¹ b."""

    def inverse_diagonal(self, kept: Tensor | None = None) -> Tensor:
        """Return the n entries [H⁻¹]_ii or, with some weights gone, [H_SS⁻¹]_ii on the kept S and 1 elsewhere."""

    def compensate(self, pruned: Tensor, step: Tensor, linear: Tensor | None = None) -> Tensor:
        """Return the minimiser of ½dᵀHd + aᵀd over all d with d = `step` on P (CBS-U)."""

    def moves(self, pruned: Tensor, step: Tensor, slopes: Sequence[Tensor]) -> list[Tensor]:
        """Return the minimiser of ½dᵀHd over all d with d = `step` on P, then −H_SS⁻¹a_S for each slope a."""

"""The Fisher matrix as the paper's selection has it: without damping, and so without an inverse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from torch import Tensor

from brainsurgeon.engine.curvature.fisher import Fisher
from brainsurgeon.errors import BrainsurgeonError


@dataclass
class Undamped(Fisher):
    """H = GᵀG/K (appendix C of the paper): all that α, β and γ need. What needs H⁻¹ is refused."""

    damping: float = 0.0

    def __post_init__(self) -> None:
        if self.damping != 0:
            raise BrainsurgeonError(f"this matrix has no damping, got {self.damping!r}: take Fisher")

    def renewed(self) -> Undamped:
        """Return the same matrix."""
        return Undamped(self.columns, _shared=self._shared)

    def solve(self, b: Tensor) -> Tensor:
        """Refuse: there is no H⁻¹."""
        _refuse()

    def inverse_diagonal(self, kept: Tensor | None = None) -> Tensor:
        """Refuse: there is no H⁻¹."""
        _refuse()

    def compensate(self, pruned: Tensor, step: Tensor, linear: Tensor | None = None) -> Tensor:
        """Refuse: there is no H⁻¹."""
        _refuse()

    def moves(self, pruned: Tensor, step: Tensor, slopes: Sequence[Tensor]) -> list[Tensor]:
        """Refuse: there is no H⁻¹."""
        _refuse()


def _refuse() -> NoReturn:
    raise BrainsurgeonError(
        "without damping the Fisher matrix has no inverse, which this selection asks for: give a positive "
        "selection_damping, or none, so that it is the damping of the update"
    )

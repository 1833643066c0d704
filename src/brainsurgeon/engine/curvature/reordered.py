"""A curvature whose weights are stored in another order, such as a matrix that lies transposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from brainsurgeon.engine.curvature.gram import Gram


@dataclass
class Reordered:
    """H of weights of which number k here is number `order[k]` of the inner curvature."""

    inner: Gram
    order: Tensor
    notes: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number n of weights."""
        return self.inner.size

    def renewed(self) -> Reordered:
        """Return the matrix itself: it remembers nothing that answers depend on."""
        return self

    def _in(self, x: Tensor) -> Tensor:
        inside = torch.empty_like(x)
        inside[self.order] = x
        return inside

    def product(self, x: Tensor) -> Tensor:
        """H x."""
        return self.inner.product(self._in(x))[self.order]

    def energy(self, steps: Tensor) -> Tensor:
        """dᵀHd for each column."""
        return self.inner.energy(self._in(steps))

    def diagonal(self) -> Tensor:
        """H_ii."""
        return self.inner.diagonal()[self.order]

    def submatrix(self, rows: Tensor, columns: Tensor) -> Tensor:
        """H_ij for few i and j."""
        return self.inner.submatrix(self.order[rows], self.order[columns])

    def solve(self, b: Tensor) -> Tensor:
        """H⁻¹ b."""
        return self.inner.solve(self._in(b))[self.order]

    def inverse_diagonal(self, kept: Tensor | None = None) -> Tensor:
        """[H⁻¹]_ii, or [H_SS⁻¹]_ii on the kept S."""
        return self.inner.inverse_diagonal(None if kept is None else self._in(kept))[self.order]

    def compensate(self, pruned: Tensor, step: Tensor, linear: Tensor | None = None) -> Tensor:
        """Return the best d with d = `step` on P."""
        force = None if linear is None else self._in(linear)
        return self.inner.compensate(self._in(pruned), self._in(step), force)[self.order]

    def moves(self, pruned: Tensor, step: Tensor, slopes: Sequence[Tensor]) -> list[Tensor]:
        """Return the best d with d = `step` on P, and the Newton step of each slope."""
        inside = self.inner.moves(self._in(pruned), self._in(step), [self._in(slope) for slope in slopes])
        return [move[self.order] for move in inside]

"""The Gram matrix of a layer's inputs as curvature: H = c_o(A + λāI) for each output row o, A = XXᵀ.

A linear map y = Wx has the same input moments A for every row of W. The loss curvature of row o is taken as A times a
scale c_o of its own, so that [H]_{oi,oi} has, on average over i, the Fisher's value (a Kronecker factorisation with a
diagonal output factor). A has full rank from a few samples, as a low-rank Fisher has not; rows and layers are blind to
one another. λ is relative: ā is the mean of A's diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from brainsurgeon.engine.curvature.kept_rows import KeptRows
from brainsurgeon.errors import BrainsurgeonError


@dataclass
class Gram:
    """H of one layer, whose n weights are R rows of m inputs; rows share A within a group of a grouped convolution.

    `moments` is A, groups×m×m in float64; `scales` is c, one number a row. Nothing of size n×n is ever made.
    """

    moments: Tensor
    scales: Tensor
    damping: float
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.damping > 0:
            raise BrainsurgeonError(f"damping must be positive, got {self.damping!r}")
        if self.scales.numel() % self.moments.shape[0]:
            raise BrainsurgeonError(f"{self.scales.numel()} rows cannot be shared by {self.moments.shape[0]} groups")

    @property
    def size(self) -> int:
        """The number n of weights."""
        return self.scales.numel() * self.inputs

    @property
    def inputs(self) -> int:
        """The number m of weights in a row."""
        return self.moments.shape[1]

    def renewed(self) -> Gram:
        """Return the matrix itself: it remembers nothing that answers depend on."""
        return self

    @cached_property
    def _damped(self) -> Tensor:
        """A + λāI; inputs that are always zero get the damping alone."""
        damped = self.moments.clone()
        diagonal = damped.diagonal(dim1=1, dim2=2)
        level = float(diagonal.mean())
        diagonal.add_(self.damping * (level if level > 0 else 1.0))
        return damped

    @cached_property
    def _group(self) -> Tensor:
        rows, groups = self.scales.numel(), self.moments.shape[0]
        return torch.arange(rows, device=self.moments.device) // (rows // groups)

    def _rows(self, x: Tensor) -> Tensor:
        return x.view(self.scales.numel(), self.inputs)

    def _times(self, x: Tensor) -> Tensor:
        """Return (A + λāI) x for each row of x."""
        groups = self.moments.shape[0]
        stacked = x.view(groups, -1, self.inputs)
        return torch.bmm(stacked, self._damped).view_as(x)

    def product(self, x: Tensor) -> Tensor:
        """H x."""
        return (self._times(self._rows(x)) * self.scales.unsqueeze(1)).reshape(-1)

    def energy(self, steps: Tensor) -> Tensor:
        """dᵀHd for each column d of an n×m matrix."""
        return torch.stack([column @ self.product(column) for column in steps.double().T])

    def diagonal(self) -> Tensor:
        """H_ii."""
        diagonal = self._damped.diagonal(dim1=1, dim2=2)[self._group]
        return (diagonal * self.scales.unsqueeze(1)).reshape(-1)

    def submatrix(self, rows: Tensor, columns: Tensor) -> Tensor:
        """H_ij for few i and j: zero unless both weights feed the same output."""
        owner_i, owner_j = rows // self.inputs, columns // self.inputs
        i, j = (rows % self.inputs).unsqueeze(1), (columns % self.inputs).unsqueeze(0)
        values = self._damped[self._group[owner_i].unsqueeze(1), i, j] * self.scales[owner_i].unsqueeze(1)
        return torch.where(owner_i.unsqueeze(1) == owner_j.unsqueeze(0), values, 0.0)

    def solve(self, b: Tensor) -> Tensor:
        """H⁻¹ b."""
        stacked = (self._rows(b) / self.scales.unsqueeze(1)).view(self.moments.shape[0], -1, self.inputs)
        return torch.cholesky_solve(stacked.transpose(1, 2), self._lower).transpose(1, 2).reshape(-1)

    def inverse_diagonal(self, kept: Tensor | None = None) -> Tensor:
        """[H⁻¹]_ii or, with some weights gone, [H_SS⁻¹]_ii on the kept S (and 1 elsewhere)."""
        if kept is None or bool(kept.all()):
            inverse = self._inverse.diagonal(dim1=1, dim2=2)[self._group]
            return (inverse / self.scales.unsqueeze(1)).reshape(-1)
        inverse = self._kept_rows(kept).inverse_diagonal() / self.scales.unsqueeze(1)
        return torch.where(self._rows(kept), inverse, 1.0).reshape(-1)

    def compensate(self, pruned: Tensor, step: Tensor, linear: Tensor | None = None) -> Tensor:
        """Return the best d with d = `step` on P (CBS-U): H_SS d_S = −H_SP d_P − a_S, row by row."""
        repair, *newton = self.moves(pruned, step, [] if linear is None else [linear])
        return sum(newton, repair)

    def moves(self, pruned: Tensor, step: Tensor, slopes: Sequence[Tensor]) -> list[Tensor]:
        """Return the best d with d = `step` on P and, for each slope a, the step −H_SS⁻¹a_S: one factor for all."""
        full = torch.where(pruned, step, 0.0)
        forces = [self._times(self._rows(full)), *(self._rows(a) / self.scales.unsqueeze(1) for a in slopes)]
        repair, *newtons = self._kept_rows(~pruned).solve(forces)
        return [full - repair.reshape(-1), *(-newton.reshape(-1) for newton in newtons)]

    def _kept_rows(self, kept: Tensor) -> KeptRows:
        return KeptRows(self._damped, lambda: self._inverse, self._factor, self._rows(kept))

    @cached_property
    def _lower(self) -> Tensor:
        return self._factor(self._damped)

    @cached_property
    def _inverse(self) -> Tensor:
        return torch.cholesky_inverse(self._lower)

    def _factor(self, systems: Tensor) -> Tensor:
        lower, info = torch.linalg.cholesky_ex(systems)
        if bool(info.any()) or not bool(torch.isfinite(lower).all()):
            raise BrainsurgeonError(
                f"the inputs' Gram matrix could not be factored with a relative damping of {self.damping:g}: the "
                "inputs are not finite, or the damping is too small (1e-6 and more works in float64)"
            )
        return lower

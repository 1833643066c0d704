"""The empirical Fisher matrix of a block, H = GᵀG/K + λI, through its K×n gradients (appendix C of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..errors import BrainsurgeonError
from .compensation import Compensation
from .factor import Factor, factorise
from .streaming import combine, combine_many, inner, outer, pieces, project, widen


@dataclass
class Fisher:
    """H = GᵀG/K + λI, of rank at most K plus the damping; nothing of size n×n unless n ≤ K.

    `columns` is Gᵀ, n×K: the gradients of one weight are one contiguous row.
    """

    columns: Tensor
    damping: float
    notes: list[str] = field(default_factory=list)
    last_step: Tensor | None = field(default=None, repr=False)
    _factor: Factor | None = None

    def __post_init__(self) -> None:
        if not self.damping > 0:
            raise BrainsurgeonError(f"damping must be positive (the paper uses 1e-3 and 1e-5), got {self.damping!r}")

    @property
    def size(self) -> int:
        """The number n of weights."""
        return self.columns.shape[0]

    @property
    def rows(self) -> int:
        """K."""
        return self.columns.shape[1]

    def product(self, x: Tensor) -> Tensor:
        """H x = Gᵀ(Gx)/K + λx: two reads of G, one where x has few entries, none where it has none."""
        if not bool(x.any()):
            return torch.zeros_like(x)
        return project(self.columns, combine(self.columns, x) / self.rows) + self.damping * x

    def energy(self, steps: Tensor) -> Tensor:
        """dᵀHd = ‖Gd‖²/K + λ‖d‖² for the m columns d of an n×m matrix: one read of G for all of them."""
        images = combine_many(self.columns, steps)
        return images.square().sum(0) / self.rows + self.damping * steps.double().square().sum(0)

    def diagonal(self) -> Tensor:
        """H_ii = ‖g_i‖²/K + λ."""
        squares = [rows.square().sum(1).double() for _, rows in pieces(self.columns)]
        return torch.cat(squares) / self.rows + self.damping

    def submatrix(self, rows: Tensor, columns: Tensor) -> Tensor:
        """H_ij = g_i·g_j/K + λ[i = j] for few i and j."""
        left, right = widen(self.columns[rows]), widen(self.columns[columns])
        same = rows.unsqueeze(1) == columns.unsqueeze(0)
        return (left @ right.T).double() / self.rows + self.damping * same

    def solve(self, b: Tensor) -> Tensor:
        """H⁻¹b, by Woodbury for K ≤ n: (b − Gᵀ(KλI + GGᵀ)⁻¹Gb)/λ, with one step of refinement."""
        factor = self._full_factor()
        once = self._apply_inverse(factor, b)
        return once + self._apply_inverse(factor, b - self.product(once))

    def inverse_diagonal(self, kept: Tensor | None = None) -> Tensor:
        """[H⁻¹]_ii = (1 − ‖L⁻¹g_i‖²)/λ with LLᵀ = KλI + GGᵀ.

        With some weights gone, [H_SS⁻¹]_ii on the kept S, and 1 elsewhere.
        """
        if kept is not None and not bool(kept.all()):
            result = torch.ones(self.size, dtype=torch.float64, device=kept.device)
            if bool(kept.any()):
                result[kept] = Fisher(self.columns[kept], self.damping, self.notes).inverse_diagonal()
            return result
        factor = self._full_factor()
        if self._is_tall:
            return torch.cholesky_inverse(factor.lower).diagonal().clone()
        parts = []
        for _, rows in pieces(self.columns):
            half = torch.linalg.solve_triangular(factor.lower, rows.T.double(), upper=False)
            parts.append((1 - half.square().sum(0)) / factor.damping)
        # Rounding can take a tiny entry below what theory allows: [H⁻¹]_ii ≥ 1/H_ii always.
        return torch.maximum(torch.cat(parts), 1 / self.diagonal())

    def stiffness(self, kept: Tensor) -> Tensor:
        """1/[H_SS⁻¹]_ii on the kept S and the Schur complement H_jj − H_jSH_SS⁻¹H_Sj elsewhere.

        With z = L⁻¹g and LLᵀ = KλI + G_SG_Sᵀ these are λ/(1 − ‖z_i‖²) and λ(1 + ‖z_j‖²).
        """
        places = kept.nonzero().squeeze(1)
        if not places.numel():
            return self.diagonal()
        factor, parts = self.factor(places), []
        if places.numel() < self.rows:
            own = widen(self.columns[places]).double()
            for _, rows in pieces(self.columns):
                cross = own @ rows.double().T / self.rows
                half = torch.linalg.solve_triangular(factor.lower, cross, upper=False)
                parts.append(rows.double().square().sum(1) / self.rows + factor.damping - half.square().sum(0))
            result = torch.cat(parts).clamp_min(factor.damping)
            result[places] = 1 / torch.cholesky_inverse(factor.lower).diagonal()
            return result
        for _, rows in pieces(self.columns):
            half = torch.linalg.solve_triangular(factor.lower, rows.T.double(), upper=False)
            parts.append(half.square().sum(0))
        share = torch.cat(parts)
        # Rounding can take 1 − ‖z‖² below what theory allows: the stiffness is never above H_ii.
        inside = torch.minimum(factor.damping / (1 - share).clamp_min(1e-15), self.diagonal())
        return torch.where(kept, inside, factor.damping * (1 + share))

    def compensate(self, pruned: Tensor, step: Tensor, linear: Tensor | None = None) -> Tensor:
        """Return the best d with d = `step` on P (CBS-U)."""
        return Compensation(self, pruned, linear)(step)

    def moves(self, pruned: Tensor, step: Tensor, slopes: Sequence[Tensor]) -> list[Tensor]:
        """Return the best d with d = `step` on P and, for each slope a, the step −H_SS⁻¹a_S: one factor for all."""
        compensation = Compensation(self, pruned, None)
        return [compensation(step), *(compensation.descend(slope) for slope in slopes)]

    @property
    def _is_tall(self) -> bool:
        """More rows than weights: then the n×n matrix is the smaller one."""
        return self.size < self.rows

    def _full_factor(self) -> Factor:
        if self._factor is None:
            self._factor = self.factor(None)
            self.damping = self._factor.damping
        return self._factor

    def factor(self, kept: Tensor | None) -> Factor:
        """Factor KλI + G_SG_Sᵀ or, where |S| < K, G_SᵀG_S/K + λI: whichever is the smaller."""
        if (self.size if kept is None else kept.numel()) < self.rows:
            return factorise(inner(self.columns, kept).div_(self.rows), self.damping, 1.0, self.notes)
        return factorise(outer(self.columns, kept), self.damping, float(self.rows), self.notes)

    def _apply_inverse(self, factor: Factor, b: Tensor) -> Tensor:
        if self._is_tall:
            return factor.solve(b)
        return (b - project(self.columns, factor.solve(combine(self.columns, b)))) / factor.damping

"""The empirical Fisher matrix of a block, H = GᵀG/K + λI, through its K×n gradients (appendix C of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.engine.curvature.compensation import Compensation
from brainsurgeon.engine.curvature.factor import Factor, factorise
from brainsurgeon.engine.curvature.streaming import (
    add_outer,
    combine,
    combine_many,
    inner,
    outer,
    pieces,
    project,
    squares,
    widen,
)
from brainsurgeon.errors import BrainsurgeonError

OUTER_SHARE = 0.25
"""The K×K matrix of an update is kept for the next where it is small beside the gradients."""
DROWNED = 3.0
"""So many times λ, and the rounding of float32 sums of the whole curvature (ε tr H) would drown the damping."""


@dataclass
class Fisher:
    """H = GᵀG/K + λI, of rank at most K plus the damping; nothing of size n×n unless n ≤ K.

    `columns` is Gᵀ, n×K: the gradients of one weight are one contiguous row.
    """

    columns: Tensor
    damping: float
    notes: list[str] = field(default_factory=list)
    last_step: Tensor | None = field(default=None, repr=False)
    _shared: dict[str, Any] = field(default_factory=dict, repr=False)
    _factor: Factor | None = None
    _outer: tuple[Tensor, Tensor] | None = field(default=None, repr=False)
    _sketch: Fisher | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.damping > 0:
            raise BrainsurgeonError(f"damping must be positive (the paper uses 1e-3 and 1e-5), got {self.damping!r}")
        self._asked = self.damping

    def renewed(self) -> Fisher:
        """Return the same matrix as it was made: what depends on G and λ alone is kept, starts for solves are not."""
        return Fisher(self.columns, self._asked, _shared=self._shared)

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what depends on G and λ alone, computed once for this matrix and those renewed from it."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    @property
    def size(self) -> int:
        """The number n of weights."""
        return self.columns.shape[0]

    @property
    def rows(self) -> int:
        """K."""
        return self.columns.shape[1]

    @property
    def precision(self) -> torch.dtype | None:
        """Float64 where rounding in float32 would drown λ; None: as stored."""
        trace = self._once("trace", lambda: float(self._once("squares", lambda: squares(self.columns)).sum()))
        rounding = torch.finfo(torch.float32).eps * trace
        if self.columns.dtype == torch.float64 or rounding <= DROWNED * self.damping * self.rows:
            return None
        note = f"the damping {self.damping:g} is small beside the curvature: products were taken in float64"
        if note not in self.notes:
            self.notes.append(note)
        return torch.float64

    def product(self, x: Tensor) -> Tensor:
        """H x = Gᵀ(Gx)/K + λx: two reads of G, one where x has few entries, none where it has none."""
        if not bool(x.any()):
            return torch.zeros_like(x)
        image = combine(self.columns, x, self.precision) / self.rows
        return project(self.columns, image, self.precision) + self.damping * x

    def energy(self, steps: Tensor) -> Tensor:
        """dᵀHd = ‖Gd‖²/K + λ‖d‖² for the m columns d of an n×m matrix: one read of G for all of them."""
        first = steps[:, 0]
        differing = (steps != first.unsqueeze(1)).any(1).nonzero().squeeze(1)  # of masks, a small part
        others = steps[differing] - first[differing].unsqueeze(1)
        images = combine(self.columns, first, self.precision).unsqueeze(1)
        images = images + combine_many(self.columns, others, differing, self.precision)
        lengths = torch.linalg.vector_norm(steps, dim=0, dtype=torch.float64)
        return images.square().sum(0) / self.rows + self.damping * lengths.square()

    def diagonal(self) -> Tensor:
        """H_ii = ‖g_i‖²/K + λ."""
        return self._once("squares", lambda: squares(self.columns)) / self.rows + self.damping

    def submatrix(self, rows: Tensor, columns: Tensor) -> Tensor:
        """H_ij = g_i·g_j/K + λ[i = j] for few i and j."""
        left, right = widen(self.columns[rows]), widen(self.columns[columns])
        same = rows.unsqueeze(1) == columns.unsqueeze(0)
        return (left @ right.T).double() / self.rows + self.damping * same.double()

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
        self._full_factor()
        return self._once("inverse diagonal", self._inverse_diagonal)

    def _inverse_diagonal(self) -> Tensor:
        factor = self._full_factor()
        if self._is_tall:
            return torch.cholesky_inverse(factor.lower).diagonal().clone()
        # Rounding can take a tiny entry below what theory allows: [H⁻¹]_ii ≥ 1/H_ii always.
        return torch.maximum((1 - self._shares(factor)) / factor.damping, 1 / self.diagonal())

    def _shares(self, factor: Factor) -> Tensor:
        """‖L⁻¹g_i‖² of every weight."""
        result = torch.empty(self.size, dtype=torch.float64, device=self.columns.device)
        for place, rows in pieces(self.columns):
            result[place] = torch.linalg.solve_triangular(factor.lower, rows.T.double(), upper=False).square().sum(0)
        return result

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
            self._factor, notes = self._once("factor", self._make_full_factor)
            self.damping = self._factor.damping
            self.notes += [note for note in notes if note not in self.notes]
        return self._factor

    def _make_full_factor(self) -> tuple[Factor, list[str]]:
        before = len(self.notes)
        return self.factor(None), self.notes[before:]

    def factor(self, kept: Tensor | None) -> Factor:
        """Factor KλI + G_SG_Sᵀ or, where |S| < K, G_SᵀG_S/K + λI: whichever is the smaller."""
        if (self.size if kept is None else kept.numel()) < self.rows:
            return factorise(inner(self.columns, kept, self.precision).div_(self.rows), self.damping, 1.0, self.notes)
        return self.outer_factor(kept)

    def outer_factor(self, kept: Tensor | None) -> Factor:
        """Factor KλI + G_SG_Sᵀ."""
        return factorise(self._outer_of(kept), self.damping, float(self.rows), self.notes)

    def sketch(self, rows: int, stiffer: float) -> Fisher:
        """Return the matrix of the first few rows, so many times as damped."""
        if self._sketch is None:
            self._sketch = Fisher(self.columns[:, :rows], stiffer * self.damping, self.notes)
        return self._sketch

    def _outer_of(self, kept: Tensor | None) -> Tensor:
        """G_SG_Sᵀ; for a mask like the last one, such as a rival's, from that one's by what differs."""
        if kept is None or 8 * self.rows**2 > OUTER_SHARE * self.columns.numel() * self.columns.element_size():
            return outer(self.columns, kept, self.precision)
        chosen = torch.zeros(self.size, dtype=torch.bool, device=kept.device)
        chosen[kept] = True
        if self._outer is not None:
            before, total = self._outer
            come, gone = ((a & ~b).nonzero().squeeze(1) for a, b in ((chosen, before), (before, chosen)))
            if 4 * (come.numel() + gone.numel()) < kept.numel():
                add_outer(total, self.columns, come, dtype=self.precision)
                add_outer(total, self.columns, gone, -1, self.precision)
                self._outer = (chosen, total)
                return total.clone()
        self._outer = None  # freed before the next is made
        self._outer = (chosen, outer(self.columns, kept, self.precision))
        return self._outer[1].clone()

    def _apply_inverse(self, factor: Factor, b: Tensor) -> Tensor:
        if self._is_tall:
            return factor.solve(b)
        image = factor.solve(combine(self.columns, b, self.precision))
        return (b - project(self.columns, image, self.precision)) / factor.damping

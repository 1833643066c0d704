"""A_SS⁻¹ for many rows that share A, each with its own kept inputs S: by a factor of S or of the others, P.

With B = A⁻¹, one for all rows, A_SS⁻¹ = B_SS − B_SP B_PP⁻¹ B_PS. So no row needs a factor of more than half of its
inputs, and the answers are exact. For a few hundred inputs the layer solver's conjugate gradients are no faster at any
sparsity, and they do not give the diagonal of A_SS⁻¹.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from brainsurgeon.events.clock import pulse

SYSTEM_BYTES = {"cpu": 32 << 20, "cuda": 256 << 20}
"""Rows are solved in batches whose matrices fill at most this much: on a CPU a second or so of work."""

System = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class KeptRows:
    """The rows' systems: `matrix` is A, groups×m×m, `inverse` gives B, `factor` a batch of Cholesky factors.

    `kept` is R×m; rows share A within a group.
    """

    matrix: Tensor
    inverse: Callable[[], Tensor]
    factor: Callable[[Tensor], Tensor]
    kept: Tensor

    @cached_property
    def _light(self) -> Tensor:
        """Which rows keep more inputs than they have lost, R×1."""
        return 2 * self.kept.sum(1, keepdim=True) > self.kept.shape[1]

    @cached_property
    def _group(self) -> Tensor:
        rows, groups = self.kept.shape[0], self.matrix.shape[0]
        return torch.arange(rows, device=self.kept.device) // (rows // groups)

    def solve(self, forces: Sequence[Tensor]) -> list[Tensor]:
        """Return A_SS⁻¹f_S for each force f, R×m; 0 on P."""
        light, kept = self._light, self.kept
        given = torch.stack(tuple(forces), 2).masked_fill(~kept.unsqueeze(2), 0.0)
        solved = self._solve(self.matrix, kept & ~light, given)
        if bool(light.any()):
            # B f_S is right but for what it gives on P: forces there take that back.
            free = self._times(self.inverse(), given * light.unsqueeze(2))
            back = self._solve(self.inverse(), ~kept & light, free)
            solved += (free - self._times(self.inverse(), back)).masked_fill(~kept.unsqueeze(2), 0.0)
        return list(solved.unbind(2))

    def inverse_diagonal(self) -> Tensor:
        """Return [A_SS⁻¹]_ii, R×m; 1 on P. With a factor LLᵀ = B_PP it is B_ii − ‖L⁻¹B_Pi‖²."""
        light, kept = self._light, self.kept
        found = torch.ones(kept.shape, dtype=self.matrix.dtype, device=kept.device)
        for rows, places, _, lower in self._systems(self.matrix, kept & ~light):
            half = torch.linalg.solve_triangular(lower, torch.eye(lower.shape[1]).to(lower), upper=False)
            found[rows] = found[rows].scatter_(1, places, half.square().sum(1))
        if bool(light.any()):
            whole = self.inverse()
            found = torch.where(light, whole.diagonal(dim1=1, dim2=2)[self._group], found)
            for rows, places, valid, lower in self._systems(whole, ~kept & light):
                others = _first(kept[rows], int(kept[rows].sum(1).max()))
                between = whole[self._group[rows].view(-1, 1, 1), others.unsqueeze(2), places.unsqueeze(1)]
                between *= valid.unsqueeze(1)
                # The view by columns is what the solver works on: no copy of it is made.
                half = torch.linalg.solve_triangular(lower, between.mT, upper=False)
                found[rows] = found[rows].scatter_add_(1, others, -half.square().sum(1))
        # Never less than 1/A_ii, whatever rounding left of a difference.
        least = 1 / self.matrix.diagonal(dim1=1, dim2=2)[self._group]
        return torch.where(kept, torch.maximum(found, least), 1.0)

    def _times(self, matrix: Tensor, x: Tensor) -> Tensor:
        """Return M x_o for each row o of x, R×m×F."""
        groups, inputs = matrix.shape[:2]
        columns = x.reshape(groups, -1, inputs, x.shape[2]).transpose(2, 3).reshape(groups, -1, inputs)
        product = torch.bmm(columns, matrix)
        return product.view(x.shape[0], x.shape[2], inputs).transpose(1, 2)

    def _solve(self, matrix: Tensor, chosen: Tensor, given: Tensor) -> Tensor:
        """Return M_CC⁻¹g_C for each row's chosen inputs C; 0 elsewhere."""
        found = torch.zeros_like(given)
        for rows, places, valid, lower in self._systems(matrix, chosen):
            index = places.unsqueeze(2).expand(-1, -1, given.shape[2])
            b = given[rows].gather(1, index) * valid.unsqueeze(2)
            # Two triangular solves: for batches on a GPU far faster than cholesky_solve.
            half = torch.linalg.solve_triangular(lower, b, upper=False)
            solution = torch.linalg.solve_triangular(lower.mT, half, upper=True)
            found[rows] = found[rows].scatter_(1, index, solution)
        return found

    def _systems(self, matrix: Tensor, chosen: Tensor) -> Iterator[System]:
        """Yield (rows, places, valid, L) in batches: LLᵀ is M on the chosen inputs of each row, padded by ones.

        Rows are taken in the order of how many they have, so that little is padding; those without any are left out.
        """
        counts = chosen.sum(1)
        order = counts.argsort(descending=True)
        order = order[counts[order] > 0]
        start, room = 0, SYSTEM_BYTES.get(chosen.device.type, 256 << 20)
        while start < order.numel():
            pulse()
            widest = int(counts[order[start]])
            rows = order[start : start + max(1, room // (8 * widest * chosen.shape[1]))]
            start += rows.numel()
            places = _first(chosen[rows], widest)
            valid = chosen[rows].gather(1, places)
            systems = matrix[self._group[rows].view(-1, 1, 1), places.unsqueeze(2), places.unsqueeze(1)]
            systems *= valid.unsqueeze(1) * valid.unsqueeze(2)
            systems.diagonal(dim1=1, dim2=2).add_((~valid).double())
            yield rows, places, valid, self.factor(systems)


def _first(chosen: Tensor, count: int) -> Tensor:
    """Return the places of each row's chosen inputs, then of others, in all so many."""
    return chosen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :count]

"""The quadratic model of the loss, Q(d) = aᵀd + ½dᵀHd, block by block (equation 1 of the paper).

For a set P of pruned weights, d = −w on P and 0 elsewhere: that is the objective of CBS-S. As in Algorithm 1,
impacts are not halved: α, β and γ are changes of 2Q.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from brainsurgeon.engine.curvature import Curvature

REMEMBERED = 4
"""Updates kept for the case that the same mask is asked for again, as several methods from one mask do."""


@dataclass(frozen=True)
class QuadraticModel:
    """Q around the trained weights w; H is block-diagonal, one curvature a block.

    `linear` is a, the first-order term: the mean gradient, or None for the paper's a = 0.
    """

    weights: Tensor
    blocks: Sequence[slice]
    curvatures: Sequence[Curvature]
    linear: Tensor | None = None

    @property
    def size(self) -> int:
        """N."""
        return self.weights.numel()

    def renewed(self) -> QuadraticModel:
        """Return the same model without a memory of what it was asked: answers then depend on the question alone."""
        return QuadraticModel(self.weights, self.blocks, [c.renewed() for c in self.curvatures], self.linear)

    @property
    def notes(self) -> list[str]:
        """What had to be repaired in any block."""
        return [note for curvature in self.curvatures for note in curvature.notes]

    def product(self, x: Tensor) -> Tensor:
        """H x."""
        return self._blockwise(lambda curvature, block: curvature.product(x[block]))

    def cost_of_step(self, d: Tensor) -> float:
        """Q(d), the predicted change of the loss."""
        return float(self._costs(d.double().unsqueeze(1)))

    def cost(self, pruned: Tensor) -> float:
        """Q of pruning P and changing nothing else: the objective of CBS-S."""
        return self.cost_of_step(-self.removed(pruned))

    def costs(self, masks: Sequence[Tensor]) -> list[float]:
        """Q of pruning each of many sets: one read of the gradients for them all."""
        steps = torch.stack([torch.where(mask, -self.weights, 0.0) for mask in masks], 1)
        return self._costs(steps).tolist()

    def _costs(self, steps: Tensor) -> Tensor:
        total = torch.zeros(steps.shape[1], dtype=torch.float64, device=steps.device)
        for curvature, block in zip(self.curvatures, self.blocks, strict=True):
            total += curvature.energy(steps[block]) / 2
        return total if self.linear is None else total + self.linear @ steps.double()

    def removed(self, pruned: Tensor) -> Tensor:
        """Return w on P and 0 elsewhere."""
        return torch.where(pruned, self.w, 0.0)

    def pressure(self, pruned: Tensor) -> Tensor:
        """H w_P: all that α and β need to know of P."""
        return self.product(self.removed(pruned))

    def impact(self, drift: Tensor, pruned: Tensor, stiffness: float = 1.0) -> Tensor:
        """α_i on P and β_j elsewhere (lines 7 and 11 of Algorithm 1).

        α_i = 2w_i(Hw_P)_i − w_i²H_ii is what bringing i back saves; β_j = 2w_j(Hw_P)_j + w_j²H_jj what removing j
        too costs. `drift` is their first term; `stiffness` multiplies the curvature.
        """
        return drift + stiffness * torch.where(pruned, -self.self_impact, self.self_impact)

    def drift(self, pressure: Tensor) -> Tensor:
        """2w_i(Hw_P)_i, less 2w_ia_i where there is a first-order term: the part of α and β that depends on P."""
        return 2 * self.w * (pressure if self.linear is None else pressure - self.linear)

    @cached_property
    def w(self) -> Tensor:
        """The weights in float64."""
        return self.weights.double()

    @cached_property
    def self_impact(self) -> Tensor:
        """w_i²H_ii."""
        return self.w.square() * self._blockwise(lambda curvature, _: curvature.diagonal())

    def gamma(self, rows: Tensor, columns: Tensor) -> Tensor:
        """γ_ij = 2w_iH_ijw_j for few i and j; 0 across blocks."""
        values = torch.zeros(rows.numel(), columns.numel(), dtype=torch.float64, device=rows.device)
        owners_i, owners_j = self.block_of(rows), self.block_of(columns)
        for number in owners_i.unique().tolist():
            i, j = (owners_i == number).nonzero().squeeze(1), (owners_j == number).nonzero().squeeze(1)
            if j.numel():
                start = self.blocks[number].start
                part = self.curvatures[number].submatrix(rows[i] - start, columns[j] - start)
                values[i.unsqueeze(1), j.unsqueeze(0)] = part
        return 2 * self.w[rows].unsqueeze(1) * values * self.w[columns].unsqueeze(0)

    def block_of(self, indices: Tensor) -> Tensor:
        """Return the number of the block of each weight."""
        ends = torch.tensor([block.stop for block in self.blocks], device=indices.device)
        return torch.bucketize(indices, ends, right=True)

    @cached_property
    def inverse_diagonal(self) -> Tensor:
        """[H⁻¹]_ii, the dear part of WoodFisher: computed once. Weights that are zero already count as gone."""
        alive = self.weights != 0
        if bool(alive.all()):
            return self._blockwise(lambda curvature, _: curvature.inverse_diagonal())
        return self._blockwise(lambda curvature, block: curvature.inverse_diagonal(alive[block]))

    def solve(self, b: Tensor) -> Tensor:
        """H⁻¹ b."""
        return self._blockwise(lambda curvature, block: curvature.solve(b[block]))

    def compensate(self, pruned: Tensor) -> Tensor:
        """Return the best step with d = −w on P: the minimiser of CBS-U. The last few are remembered."""
        for mask, step in self._compensated:
            if torch.equal(mask, pruned):
                return step
        self._compensated.append((pruned.clone(), self._compensate(pruned)))
        return self._compensated[-1][1]

    @cached_property
    def _compensated(self) -> deque[tuple[Tensor, Tensor]]:
        return deque(maxlen=REMEMBERED)

    def _compensate(self, pruned: Tensor) -> Tensor:
        step = -self.removed(pruned)

        def best(curvature: Curvature, block: slice) -> Tensor:
            linear = None if self.linear is None else self.linear[block]
            return curvature.compensate(pruned[block], step[block], linear)

        return self._blockwise(best)

    def moves(self, pruned: Tensor, slopes: Sequence[Tensor]) -> list[Tensor]:
        """Return the joint update of CBS-U, then the Newton step −H_SS⁻¹a_S for each slope a; 0 on P."""
        step = -self.removed(pruned)
        parts = [
            curvature.moves(pruned[block], step[block], [slope[block] for slope in slopes])
            for curvature, block in zip(self.curvatures, self.blocks, strict=True)
        ]
        return [torch.cat(move) for move in zip(*parts, strict=True)]

    def _blockwise(self, function) -> Tensor:  # type: ignore[no-untyped-def]
        return torch.cat([function(c, b) for c, b in zip(self.curvatures, self.blocks, strict=True)])

"""CBS-U on a low-rank block: how the kept weights make up for the pruned ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brainsurgeon.engine.curvature.conjugate import conjugate_gradients
from brainsurgeon.engine.curvature.streaming import combine, project

if TYPE_CHECKING:
    from brainsurgeon.engine.curvature.fisher import Fisher

FACTOR_BYTES = 256 << 20
"""A factor for an update may always take this much, and more only up to a share of the gradients' own bytes."""
FACTOR_SHARE = 0.3
COPY_BYTES = 256 << 20
"""A copy of the kept weights' gradients, made once for conjugate gradients, may take this much and that share."""
SKETCH_ROWS, SKETCH_DAMPING = 1500, 10.0
"""Of the preconditioner. More rows save few iterations and cost more than they save; so does less damping."""

ILL_CONDITIONED = 1e-10
"""The relative residual of an update whose damping is tiny: a small residual may still cost much there."""


class Compensation:
    """CBS-U: (G_SᵀG_S/K + λI) d_S = −(G_SᵀG_P/K) d_P − a_S (section 6 of the paper, with its slip mended).

    For a = 0 and K ≤ |S| this is d_S = −G_Sᵀ(KλI + G_SG_Sᵀ)⁻¹G_P d_P, which loses nothing to cancellation.
    Where even the smaller factor would take too much memory, conjugate gradients read G instead.
    """

    def __init__(self, fisher: Fisher, pruned: Tensor, linear: Tensor | None):
        self._fisher, self._pruned, self._linear = fisher, pruned, linear
        self._kept = (~pruned).nonzero().squeeze(1)
        side = min(fisher.rows, self._kept.numel())
        held = fisher.columns.numel() * fisher.columns.element_size()
        allowed = max(FACTOR_BYTES, FACTOR_SHARE * held)
        if fisher.columns.is_cuda:  # by the size of the device, not by what is free: the result must not depend on that
            allowed = max(allowed, torch.cuda.get_device_properties(fisher.columns.device).total_memory / 8)
        self._factor = fisher.factor(self._kept) if 2 * 8 * side**2 <= allowed else None
        # Many products to come: a copy of the kept weights' gradients saves reading the others'.
        copied = held * self._kept.numel() / fisher.size
        few = self._factor is None and copied <= COPY_BYTES + FACTOR_SHARE * held
        self._rows = fisher.columns[self._kept] if few else None

    def __call__(self, step: Tensor) -> Tensor:
        """Return the best d with d = `step` on P."""
        return self._best(step, self._linear)

    def descend(self, slope: Tensor) -> Tensor:
        """Return −H_SS⁻¹a_S, the Newton step of a slope a."""
        return self._best(torch.zeros_like(slope), slope)

    def _best(self, step: Tensor, linear: Tensor | None) -> Tensor:
        fisher, kept = self._fisher, self._kept
        full = torch.where(self._pruned, step, 0.0)
        force = combine(fisher.columns, full, fisher.precision)  # G_P d_P, a K-vector
        extra = None if linear is None else linear[kept]
        if self._factor is None:
            full[kept] = self._iterate(force, extra)
            return full
        full[kept] = self._apply(force, extra)
        # One step of refinement: the Gram matrix was summed in the storage's precision.
        residual = -(fisher.product(full)[kept] if extra is None else fisher.product(full)[kept] + extra)
        full[kept] += self._apply(None, -residual)
        return full

    def _apply(self, force: Tensor | None, extra: Tensor | None) -> Tensor:
        """Solve H_SS d = −G_Sᵀ force/K − extra with the factor at hand."""
        fisher, factor, kept = self._fisher, self._factor, self._kept
        assert factor is not None
        if kept.numel() < fisher.rows:
            b = torch.zeros(kept.numel(), dtype=torch.float64, device=kept.device)
            b = b if force is None else b - self._kept_project(force) / fisher.rows
            return factor.solve(b if extra is None else b - extra)
        inner_force = torch.zeros(fisher.rows, dtype=torch.float64, device=kept.device)
        inner_force = inner_force if force is None else inner_force - force
        if extra is None:
            return self._kept_project(factor.solve(inner_force))
        inner_force = inner_force + self._kept_combine(extra) / factor.damping
        return self._kept_project(factor.solve(inner_force)) - extra / factor.damping

    def _iterate(self, force: Tensor, extra: Tensor | None) -> Tensor:
        fisher = self._fisher
        b = -self._kept_project(force) / fisher.rows
        b = b if extra is None else b - extra

        def product(x: Tensor) -> Tensor:
            return self._kept_project(self._kept_combine(x)) / fisher.rows + fisher.damping * x

        guess = fisher.last_step  # another mask's update, such as a rival's, is a good start
        start = None if guess is None or extra is not None else guess[self._kept]
        tolerance = {} if fisher.precision is None else {"tolerance": ILL_CONDITIONED}
        solution, note = conjugate_gradients(product, b, self._sketch(), start=start, **tolerance)
        if extra is None:
            fisher.last_step = torch.zeros(fisher.size, dtype=torch.float64, device=b.device)
            fisher.last_step[self._kept] = solution
        if note:
            fisher.notes.append(note)
        return solution

    def _sketch(self) -> Callable[[Tensor], Tensor]:
        """Return the inverse of H_SS as the first few thousand rows alone would have it: a strong preconditioner."""
        fisher = self._fisher
        factor = fisher.sketch(SKETCH_ROWS, SKETCH_DAMPING).outer_factor(self._kept)
        every, kept = (fisher.columns, self._kept) if self._rows is None else (self._rows, None)
        some = every[:, :SKETCH_ROWS]

        def apply(r: Tensor) -> Tensor:
            full = r
            if kept is not None:
                full = torch.zeros(fisher.size, dtype=torch.float64, device=r.device)
                full[kept] = r
            image = project(some, factor.solve(combine(some, full, fisher.precision)), fisher.precision)
            return (r - (image if kept is None else image[kept])) / factor.damping

        return apply

    def _kept_project(self, r: Tensor) -> Tensor:
        if self._rows is not None:
            return project(self._rows, r, self._fisher.precision)
        return project(self._fisher.columns, r, self._fisher.precision)[self._kept]

    def _kept_combine(self, x: Tensor) -> Tensor:
        if self._rows is not None:
            return combine(self._rows, x, self._fisher.precision)
        full = torch.zeros(self._fisher.size, dtype=torch.float64, device=x.device)
        full[self._kept] = x
        return combine(self._fisher.columns, full, self._fisher.precision)

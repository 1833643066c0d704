"""Pruned weights that come back in a stage, each for a kept one that is worth less by now.

While the kept weights S follow it, bringing weight j back by a Newton step of length s saves s(1 − s/2)·a_j²/h_j, and
removing i costs w_i²h_i/2, h being the stiffness of each: 1/[H_SS⁻¹]_ii on S, the Schur complement elsewhere.
"""

from __future__ import annotations

from torch import Tensor

from .mask import Budget
from .quadratic import QuadraticModel

MOST_RETURNED = 0.05
"""The share of the kept weights that may be exchanged at once: the model sees one exchange at a time."""


def revise(quadratic: QuadraticModel, pruned: Tensor, slope: Tensor, length: float, budget: Budget) -> Tensor:
    """Return a mask of the same counts: the dearest of the pruned are back for the cheapest of the kept."""
    stiffness = quadratic.stiffness(~pruned)
    step = min(length, 1.0)
    saving = step * (1 - step / 2) * slope.square() / stiffness
    cost = quadratic.w.square() * stiffness / 2
    revised = pruned.clone()
    for group in budget.groups:
        out, kept = group[pruned[group]], group[~pruned[group]]
        most = min(out.numel(), int(MOST_RETURNED * kept.numel()))
        back = out[saving[out].topk(most).indices]
        gone = kept[cost[kept].topk(most, largest=False).indices]
        worth = saving[back] > cost[gone]
        revised[back[worth]], revised[gone[worth]] = False, True
    return revised

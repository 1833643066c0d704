"""The 0-1 quadratic program behind CBS-S: min ½yᵀMy + cᵀy with Σy = n, M positive semidefinite."""

from __future__ import annotations

import numpy as np

from brainsurgeon.exact.branch import Outcome, branch_and_bound
from brainsurgeon.exact.incumbent import lowest, rounded
from brainsurgeon.exact.instance import Array
from brainsurgeon.exact.selection_relaxation import rough_selection, tight_selection
from brainsurgeon.exact.tangent import root_bound


def minimise(matrix: Array, linear: Array, start: Array, deadline: float, max_nodes: int | None = None) -> Outcome:
    """Solve it by branch and bound from a start, whose count n is kept."""
    count = int(start.sum())
    if not matrix.any():
        pruned = lowest(linear, count)
        return Outcome(pruned, float(linear[pruned].sum()), float(linear[pruned].sum()), "optimal", 0)
    rough = rough_selection(matrix, linear, count)
    value = float(rough.tangent(start[None].astype(float))[0][0])
    scale = max(value - root_bound(rough)[0], 1e-9 * float(np.diag(matrix).max()))
    relaxation = tight_selection(matrix, linear, count, scale, deadline)
    return branch_and_bound(relaxation, rounded(relaxation, start), deadline, max_nodes)

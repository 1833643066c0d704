"""What an exact method gives back: a pruning, its cost, and how much better any other could be."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Certified:
    """The best pruning found and a lower bound on the cost of every other with the same count.

    `status` is "optimal", "time limit" or "interrupted". `delta` is the change of all weights, −w on P. `cost` says
    which cost is meant: "selection" (CBS-S) or "joint" (CBS).
    """

    pruned: Tensor
    delta: Tensor
    objective: float
    lower_bound: float
    status: str
    formulation: str
    cost: str
    seconds: float
    nodes: int | None = None

    @property
    def gap(self) -> float:
        """How far the objective may be from the optimum, as a share of the objective; 0 is a proof."""
        return relative_gap(self.objective, self.lower_bound)

    def summary(self) -> str:
        """Return the outcome in a sentence."""
        proof = "proven optimal" if self.status == "optimal" else f"stopped by {self.status}, gap {self.gap:.2%}"
        return (
            f"{self.formulation}: {int(self.pruned.sum())} of {self.pruned.numel()} weights pruned, {self.cost} cost "
            f"{self.objective:.6g} (lower bound {self.lower_bound:.6g}; {proof}; {self.seconds:.2f} s)"
        )


def relative_gap(objective: float, lower: float) -> float:
    """(objective − bound)/|objective|; 0 where they meet."""
    difference = objective - lower
    return 0.0 if difference <= 0 else difference / max(abs(objective), 1e-300)

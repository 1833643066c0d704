"""How many weights are gone after each stage."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .errors import BrainsurgeonError
from .mask import Budget

KINDS: dict[str, Callable[[float, float], float]] = {
    # From the share f of the stages done and the final sparsity r to the share of weights kept.
    "exponential": lambda f, r: (1 - r) ** f,
    "polynomial": lambda f, r: 1 - r * (1 - (1 - f) ** 3),
    "linear": lambda f, r: 1 - r * f,
}


@dataclass(frozen=True)
class Stages:
    """Prune in `stages` steps, each with curvature taken at the weights reached, then refit `refits` times.

    `kind` says how the share of kept weights falls: "exponential" (by the same factor each stage), "polynomial"
    (cubic: fast, then slow) or "linear". A refit prunes nothing more: it moves the kept weights once more. At the end
    come `walks` of many short steps: the first tries several strides, each later one goes on with the best of them.
    """

    stages: int = 15
    kind: str = "exponential"
    refits: int = 15
    walks: int = 3

    def __post_init__(self) -> None:
        for number in (self.stages, self.refits, self.walks):
            if isinstance(number, bool) or not isinstance(number, int):
                raise BrainsurgeonError(
                    f"the numbers of stages, refits and walks must be whole numbers, got {number!r}"
                )
        if self.stages < 1 or self.refits < 0 or self.walks < 0:
            raise BrainsurgeonError(f"there must be at least 1 stage, and no negative number of anything, got {self}")
        if self.kind not in KINDS:
            raise BrainsurgeonError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")

    @property
    def looks(self) -> int:
        """The number of stages and refits."""
        return self.stages + self.refits

    @property
    def total(self) -> int:
        """The number of stages, refits and walks."""
        return self.looks + self.walks

    def budget_at(self, progress: float, final: Budget) -> Budget:
        """Return what is to be gone after a share of the stages, in each group of the final budget."""
        if progress >= 1:
            return final
        counts = []
        for group, count in zip(final.groups, final.counts, strict=True):
            size = group.numel()
            gone = size * (1 - KINDS[self.kind](progress, count / size)) if count else 0
            counts.append(min(count, math.ceil(gone - 1e-9)))
        return Budget(final.groups, tuple(counts))

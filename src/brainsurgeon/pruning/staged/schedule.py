"""How many weights are gone after each stage."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from brainsurgeon.engine.budget import Budget
from brainsurgeon.errors import BrainsurgeonError

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
    (cubic: fast, then slow) or "linear". A refit prunes nothing more: it moves the kept weights once more. `trainings`
    are phases of masked SGD, many short steps on the kept weights: of several, the first comes in the middle of the
    stages, so that what goes later is chosen from weights that have settled; the others come at the end. The first
    tries several learning rates.
    """

    stages: int = 15
    kind: str = "exponential"
    refits: int = 15
    trainings: int = 2

    def __post_init__(self) -> None:
        for number in (self.stages, self.refits, self.trainings):
            if isinstance(number, bool) or not isinstance(number, int):
                raise BrainsurgeonError(
                    f"the numbers of stages, refits and trainings must be whole numbers, got {number!r}"
                )
        if self.stages < 1 or self.refits < 0 or self.trainings < 0:
            raise BrainsurgeonError(f"there must be at least 1 stage, and no negative number of anything, got {self}")
        if self.kind not in KINDS:
            raise BrainsurgeonError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")

    @classmethod
    def of(cls, schedule: Stages | int | None) -> Stages:
        """Return a schedule: a number n stands for n stages and n refits."""
        if schedule is None or isinstance(schedule, Stages):
            return schedule or cls()
        return cls(schedule, refits=schedule)

    @property
    def examinations(self) -> int:
        """The number of stages and refits: each examines the loss."""
        return self.stages + self.refits

    @property
    def total(self) -> int:
        """The number of stages, refits and trainings."""
        return self.examinations + self.trainings

    def is_training(self, number: int) -> bool:
        """Say whether what comes at a number is a training."""
        if self.trainings < 2:
            return number > self.examinations
        return number == max(1, self.stages // 2) + 1 or number > self.examinations + 1

    def examinations_from(self, number: int) -> list[int]:
        """Return the numbers of the stages and refits from a number on."""
        return [later for later in range(number, self.total + 1) if not self.is_training(later)]

    def examinations_before(self, number: int) -> int:
        """Return how many stages and refits come before a number."""
        return self.examinations - len(self.examinations_from(number))

    def trainings_from(self, number: int) -> int:
        """Return how many trainings come from a number on."""
        return self.total - number + 1 - len(self.examinations_from(number))

    def progress_at(self, count: int, final: Budget) -> float:
        """Return the least share of the stages after which so many weights are to be gone, in thousandths."""
        low, high = 0, 1000
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.budget_at(middle / 1000, final).total >= count else (middle, high)
        return high / 1000

    def budget_at(self, progress: float, final: Budget) -> Budget:
        """Return what is to be gone after a share of the stages, in each group of the final budget."""
        if progress >= 1:
            return final
        counts = []
        for group, count in zip(final.groups, final.counts, strict=True):
            size = group.numel()
            gone = size * (1 - KINDS[self.kind](progress, count / size)) if count else 0
            counts.append(min(count, math.ceil(gone - 1e-9)))
        return final.with_counts(counts)

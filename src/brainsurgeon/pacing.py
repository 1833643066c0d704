"""How a staged run shares out what it may cost: sample gradients among looks and walks, seconds among stages."""

from __future__ import annotations

from dataclasses import dataclass

from .schedule import Stages
from .stand import Effort, Stand

DAMPINGS = (1.0, 0.1, 10.0)
LOOK = 5
"""In every so many stages all slopes, a second mask and, where both may be used, both kinds of curvature compete; the
winners work in between."""
DAMPING_LOOK = 3
"""Other dampings are tried in every so many stages."""
WALK_SHARE = 0.6
"""The share of the sample gradients that is kept for walks."""


@dataclass(frozen=True)
class Pacing:
    """What each stage of a schedule may take, with so many training samples, kinds of curvature and slopes."""

    schedule: Stages
    effort: Effort
    samples: int
    curvatures: int
    slopes: int

    def is_look(self, number: int) -> bool:
        """Say whether all compete in this stage."""
        return self.schedule.looks_before(number) % LOOK == 0

    def dampings(self, number: int) -> tuple[float, ...]:
        """Return the factors of the damping that this stage tries."""
        return DAMPINGS if self.schedule.looks_before(number) % DAMPING_LOOK == 0 else DAMPINGS[:1]

    def share(self, stand: Stand) -> int:
        """Return how many samples a stage examines the loss on; each costs a gradient for every curvature and slope."""
        numbers = self.schedule.looks_from(stand.number)
        looks = sum(map(self.is_look, numbers))
        wanted = len(numbers) + looks * (self.curvatures - 1)
        wanted += (self.slopes - 1) * (looks if stand.favoured == "loss" else len(numbers))
        share = self.effort.share(wanted, stand.gradients - stand.walked, WALK_SHARE if self.schedule.walks else 0)
        return min(self.samples, share)

    def owed(self, stand: Stand) -> int:
        """Return how many gradients a walk must leave to the stages and refits that are still to come."""
        most = int(self.effort.max_gradients * (1 - WALK_SHARE))
        return max(0, most - stand.gradients + stand.walked) if self.schedule.looks_from(stand.number) else 0

    def progress(self, number: int, stand: Stand, elapsed: float, paces: list[float]) -> float | None:
        """Return how far pruning is to have come after this stage, in larger steps where time is short.

        None once time is up: `paces` are the seconds that the stages so far have taken.
        """
        left = self.schedule.stages - self.schedule.looks_before(number)
        if self.effort.max_seconds is not None and paces:
            affordable = (self.effort.max_seconds - elapsed) / max(sum(paces) / len(paces), 1e-9)
            if stand.progress >= 1:
                return 1.0 if affordable >= 1 else None
            left = max(1, int(min(left, affordable)))
        if self.schedule.is_walk(number):
            return stand.progress
        return 1.0 if left <= 1 else stand.progress + (1 - stand.progress) / left

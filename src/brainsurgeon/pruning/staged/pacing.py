"""How a staged run shares out what it may cost: sample gradients among examinations and trainings, seconds as well."""

from __future__ import annotations

import math
from dataclasses import dataclass

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.staged.schedule import Stages
from brainsurgeon.pruning.staged.state import State

DAMPINGS = (1.0, 0.1, 10.0)
CONTEST = 5
"""In every so many stages all slopes and, where both may be used, both kinds of curvature compete; the winners work in
between."""
DAMPING_CONTEST = 3
"""Other dampings are tried in every so many stages."""
TRAINING_SHARE = 0.6
"""The share of the sample gradients that is kept for trainings."""


class TooFewGradientsError(BrainsurgeonError):
    """A schedule that is asked for cannot be kept."""


@dataclass(frozen=True)
class Pacing:
    """What each stage of a schedule may take, with so many training samples, kinds of curvature and slopes."""

    schedule: Stages
    max_gradients: int
    samples: int
    curvatures: int
    slopes: int

    def is_contest(self, number: int) -> bool:
        """Say whether all compete in this stage."""
        return self.schedule.examinations_before(number) % CONTEST == 0

    def dampings(self, number: int) -> tuple[float, ...]:
        """Return the factors of the damping that this stage tries."""
        return DAMPINGS if self.schedule.examinations_before(number) % DAMPING_CONTEST == 0 else DAMPINGS[:1]

    def share(self, state: State) -> int:
        """Return how many samples a stage examines the loss on; each costs a gradient for every curvature and slope."""
        numbers = self.schedule.examinations_from(state.number)
        contests = sum(map(self.is_contest, numbers))
        wanted = len(numbers) + contests * (self.curvatures - 1)
        wanted += (self.slopes - 1) * (contests if state.choice.favoured == "loss" else len(numbers))
        taken = state.gradients - state.trained
        most = int(self.max_gradients * (1 - (TRAINING_SHARE if self.schedule.trainings else 0)))
        if most < wanted + taken:
            raise TooFewGradientsError(
                f"max_gradients={self.max_gradients} is not one for each of the {wanted} examinations of the loss that "
                "the stages and refits take: allow more, or ask for fewer stages"
            )
        return min(self.samples, (most - taken) // wanted)

    def owed(self, state: State) -> int:
        """Return how many gradients a training must leave to the stages and refits that are still to come."""
        most = int(self.max_gradients * (1 - TRAINING_SHARE))
        return max(0, most - state.gradients + state.trained) if self.schedule.examinations_from(state.number) else 0

    def progress(self, number: int, state: State, seconds: float, paces: list[float]) -> float | None:
        """Return how far pruning is to have come after this stage, in larger steps where time is short.

        None once time is up: `seconds` are left, `paces` are those that the stages so far have taken.
        """
        left = self.schedule.stages - self.schedule.examinations_before(number)
        if seconds < math.inf and paces:
            affordable = seconds / max(sum(paces) / len(paces), 1e-9)
            if state.progress >= 1:
                return 1.0 if affordable >= 1 else None
            left = max(1, int(min(left, affordable)))
        if self.schedule.is_training(number):
            return state.progress
        return 1.0 if left <= 1 else state.progress + (1 - state.progress) / left

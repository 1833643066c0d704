"""The search for a learning rate: short runs, neighbours first, until the next one is worse."""

from __future__ import annotations

import math
from collections.abc import Callable

RATES = (0.00006, 0.0002, 0.0006, 0.002, 0.006, 0.02)
"""Learning rates that may be tried."""
LONGER = 0.7
"""What a long run takes of the rate that is best in a short one, which has fewer steps to get anywhere."""
FIRST_RATE, FIRST_REPAIR = 4, 2
"""The number of the rate that is tried first: with cuts to come, and after the only cut."""
USUAL, WORTH = 3, 0.75
"""The number of a rate that is seldom too high, and how low the loss of the next lower one must be beside its own."""
TRIED, SEARCHED = 0.03, 0.25
"""The share of the sample gradients that each try of a learning rate takes, and that all of them may take."""
FEWEST_STEPS = 20


def tries_of(gradients: int, batch: int) -> tuple[int, int]:
    """Return how many steps a try takes, and how many tries there may be."""
    steps = max(FEWEST_STEPS, int(TRIED * gradients / batch))
    return steps, int(SEARCHED * gradients / (steps * batch))


def best_rate(held: Callable[[float], float], first: int, tries: int, near: bool = False) -> float:
    """Return the learning rate with the least held-out loss, for a long run.

    `held` tells the loss after a short run at a rate, infinity where it diverges or is not tried any more. It speaks
    for staying `near` the dense network where that was trained on the held-out samples too: a rate below the usual one
    must then be much better to be taken.
    """
    losses: dict[int, float] = {}

    def loss(number: int) -> float:
        if number not in losses:
            losses[number] = held(RATES[number])
        return losses[number]

    best = first
    if tries >= 2:  # a single try compares with nothing
        while best and loss(best) == math.inf:  # it diverges
            best -= 1
        for way in (-1, 1):
            while 0 <= best + way < len(RATES):
                worth = WORTH if near and way < 0 and best <= USUAL else 1.0
                if loss(best + way) >= worth * loss(best):
                    break
                best += way
    return LONGER * RATES[best]

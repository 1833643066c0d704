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
SAYING = 0.99
"""A network whose loss is no lower than this share of that of a network without weights says nothing."""


def tries_of(gradients: int, batch: int) -> tuple[int, int]:
    """Return how many steps a try takes, and how many tries there may be."""
    steps = max(FEWEST_STEPS, int(TRIED * gradients / batch))
    return steps, int(SEARCHED * gradients / (steps * batch))


def best_rate(
    held: Callable[[float], float | None], first: int, tries: int, near: bool = False, nothing: float = math.inf
) -> float:
    """Return the learning rate with the least held-out loss, for a long run.

    `held` tells the loss after a short run at a rate, infinity where it diverges, None where it is not tried any more.
    A loss as high as that of a network without weights, `nothing`, says only that the rate is too high, unless all of
    them have it. Held-out samples speak for staying `near` the dense network where that was trained on them too: a rate
    below the usual one must then be much better to be taken.
    """
    found: dict[int, float | None] = {}

    def told(number: int) -> float | None:
        if number not in found:
            found[number] = held(RATES[number])
        return found[number]

    def loss(number: int) -> float:
        value = told(number)
        return math.inf if value is None else value

    best = first
    if tries >= 2:  # a single try compares with nothing
        best = _low_enough(told, first, nothing)
        for way in (-1, 1) if told(best) is not None else ():
            while 0 <= best + way < len(RATES):
                worth = WORTH if near and way < 0 and best <= USUAL else 1.0
                if loss(best + way) >= worth * loss(best):
                    break
                best += way
    return LONGER * RATES[best]


def _low_enough(told: Callable[[int], float | None], first: int, nothing: float) -> int:
    """Return the first rate, from one on downwards, that neither diverges nor trains the network away.

    Where that ends with none, it is the first whose loss is that of nothing, as it is after cuts that leave nothing; if
    there is no such rate either, one below those that were tried; and if all were, the first that does not diverge.
    """
    number, finite, mute = first, None, None
    while True:
        value = told(number)
        if value is None:
            return number if mute is None else mute
        if value < SAYING * nothing:
            return number
        if finite is None and value < math.inf:
            finite = number
        if mute is None and value <= nothing / SAYING:
            mute = number
        if not number:
            return 0 if finite is None else finite
        number -= 1

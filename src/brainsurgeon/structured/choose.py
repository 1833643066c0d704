"""How many units each group loses: the cheapest next ones for what they save, until the target is met."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.structured.sizes import Size


@dataclass(frozen=True)
class Curve:
    """A group's units in the order of their removal, and what each costs when it goes."""

    order: tuple[int, ...]
    costs: tuple[float, ...]

    @property
    def sums(self) -> list[float]:
        """The cost of the first n units, for n from 0."""
        return [0.0, *accumulate(self.costs)]


def choose_counts(
    curves: Sequence[Curve], units: Sequence[int], size: Size, target: int, least: float, multiple: int
) -> list[int]:
    """Return how many units of each group go, so that `size` is at most the target, and no one unit could come back.

    No group keeps fewer than a share `least` of its units, and all keep multiples of `multiple` where they can.
    """
    sums = [curve.sums for curve in curves]
    allowed = [_allowed(count, least, multiple) for count in units]
    kept, gone = [*units], [0] * len(units)
    while (now := size.count(kept)) > target:
        best, step = _cheapest(sums, allowed, gone, kept, size, now - target)
        if best is None:
            raise BrainsurgeonError(
                f"the smallest network that the groups allow has {now:,}, more than the {target:,} asked for: raise "
                "the target, lower `least`, or include more layers"
            )
        gone[best] += step
        kept[best] -= step
    _give_back(sums, allowed, gone, kept, size, target)
    return gone


def _allowed(units: int, least: float, multiple: int) -> list[int]:
    """Return the counts that a group may lose, rising from 0."""
    most = units - max(1, math.ceil(least * units))
    return [gone for gone in range(most + 1) if not gone or (units - gone) % multiple == 0]


def _cheapest(
    sums: Sequence[Sequence[float]],
    allowed: Sequence[list[int]],
    gone: Sequence[int],
    kept: Sequence[int],
    size: Size,
    short: int,
) -> tuple[int | None, int]:
    """Return the group whose next units cost least for what they save, and how many of them go at once."""
    best, step, lowest = None, 0, math.inf
    for group, counts in enumerate(allowed):
        at = counts.index(gone[group])
        ahead = 1
        while at + ahead < len(counts):
            fewer = counts[at + ahead] - gone[group]
            saved = size.saved(kept, group, fewer)
            price = (sums[group][gone[group] + fewer] - sums[group][gone[group]]) / max(min(saved, 2 * short), 1)
            if saved and price < lowest:
                best, step, lowest = group, fewer, price
            ahead *= 2
    return best, step


def _give_back(
    sums: Sequence[Sequence[float]],
    allowed: Sequence[list[int]],
    gone: list[int],
    kept: list[int],
    size: Size,
    target: int,
) -> None:
    """Take back the dearest units that the target has room for."""
    while True:
        room, best, dearest = target - size.count(kept), None, -1.0
        for group, counts in enumerate(allowed):
            at = counts.index(gone[group])
            if at == 0:
                continue
            more = gone[group] - counts[at - 1]
            grown = -size.saved(kept, group, -more)
            price = sums[group][gone[group]] - sums[group][gone[group] - more]
            if grown <= room and price > dearest:
                best, dearest, step = group, price, more
        if best is None:
            return
        gone[best] -= step
        kept[best] += step

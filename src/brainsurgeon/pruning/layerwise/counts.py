"""How many weights of each layer go: as the budget says, or by the layers' errors where several share a count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from fractions import Fraction

from brainsurgeon.engine.budget import Share, apportion
from brainsurgeon.pruning.layerwise.allocate import ErrorCurve, allocate

Counts = dict[str, int]


def shared_counts(
    shares: Sequence[Share], maps: Collection[str], curves: Callable[[], list[ErrorCurve]], area: int = 1
) -> tuple[Counts, Counts]:
    """Return how many weights of each linear map go, and of the others; several layers share by their errors.

    A layer without a curve has the mean sparsity. Blocks of an `area` go whole.
    """
    counts: Counts = {}
    found: dict[str, ErrorCurve] = {}
    for share in shares:
        if len(share.layers) == 1:
            counts[share.layers[0][0]] = share.count
            continue
        found = found or {curve.name: curve for curve in curves()}
        counts |= _of_share(share, found, area)
    return {n: c for n, c in counts.items() if n in maps}, {n: c for n, c in counts.items() if n not in maps}


def _of_share(share: Share, found: dict[str, ErrorCurve], area: int) -> Counts:
    inside = [(name, size) for name, _, size in share.layers if name in found]
    rest = [(name, size) for name, _, size in share.layers if name not in found]
    room, size = sum(n for _, n in inside), sum(n for _, n in rest)
    plain = max(share.count * size // (room + size) // area * area, share.count - room)
    quotas = [Fraction(plain * n, max(size, 1)) for _, n in rest]
    others = apportion(plain, quotas, [n for _, n in rest])
    units = allocate([found[name] for name, _ in inside], share.count - plain) if inside else []
    names = [name for name, _ in (*rest, *inside)]
    return dict(zip(names, [*others, *rounded(units, area)], strict=True))


def rounded(counts: list[int], area: int) -> list[int]:
    """Round counts to multiples of a block's area with the same sum, which is such a multiple."""
    if area == 1:
        return counts
    down = [count // area for count in counts]
    missing = sum(counts) // area - sum(down)
    order = sorted(range(len(counts)), key=lambda k: -(counts[k] % area))
    for k in order[:missing]:
        down[k] += 1
    return [count * area for count in down]

"""Multiply-adds and parameters of the smaller network, exactly, from how many units each group keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor

from brainsurgeon.structured.follow import Followed
from brainsurgeon.structured.groups import Group


@dataclass(frozen=True)
class Side:
    """A number of rows or columns: so many that always stay, and so many for each unit that a group keeps."""

    always: int
    each: tuple[tuple[int, int], ...] = ()

    def count(self, kept: Sequence[int]) -> int:
        """Return how many there are."""
        return self.always + sum(kept[group] * many for group, many in self.each)


@dataclass(frozen=True)
class Term:
    """A product of sides, times a number."""

    times: int
    sides: tuple[Side, ...]

    def count(self, kept: Sequence[int]) -> int:
        """Return its value."""
        return self.times * prod(side.count(kept) for side in self.sides)

    @property
    def groups(self) -> set[int]:
        """The groups that it depends on."""
        return {group for side in self.sides for group, _ in side.each}


class Size:
    """A sum of terms."""

    def __init__(self, terms: Iterable[Term], groups: int):
        merged = defaultdict[tuple[Side, ...], int](int)
        for term in terms:
            merged[term.sides] += term.times
        self.terms = [Term(times, sides) for sides, times in merged.items()]
        self._of = [[term for term in self.terms if group in term.groups] for group in range(groups)]

    def count(self, kept: Sequence[int]) -> int:
        """Return the whole."""
        return sum(term.count(kept) for term in self.terms)

    def saved(self, kept: Sequence[int], group: int, fewer: int) -> int:
        """Return how much less it is when a group keeps so many units fewer."""
        less = [*kept]
        less[group] -= fewer
        return sum(term.count(kept) - term.count(less) for term in self._of[group])


def multiply_adds(followed: Followed, groups: Sequence[Group], total: int) -> Size:
    """Return the multiply-adds of the traced call; `total` is their count in the network as it is."""
    index = _index(groups)
    terms = [
        Term(p.each, (_side(followed, p.rows, index), _side(followed, p.columns, index))) for p in followed.products
    ]
    by_group = defaultdict[int | None, int](int)
    for atom, count in followed.other.items():
        known = index.get(followed.atoms.find(atom)) if atom else None
        by_group[None if known is None else known[0]] += count
    for group, count in by_group.items():  # the same for each unit of a group
        side = Side(1) if group is None else Side(0, ((group, 1),))
        terms.append(Term(count if group is None else count // groups[group].units, (side,)))
    size = Size(terms, len(groups))
    # What is counted but not followed, as the steps of a recurrent layer, stays as it is.
    rest = total - size.count([group.units for group in groups])
    return Size([*size.terms, Term(rest, (Side(1),))], len(groups))


def parameters(followed: Followed, groups: Sequence[Group], names: Mapping[str, Tensor]) -> Size:
    """Return the number of parameters."""
    index = _index(groups)
    terms = []
    for name, tensor in names.items():
        sides = [
            _side(followed, followed.axes[name, axis], index) if (name, axis) in followed.axes else Side(size)
            for axis, size in enumerate(tensor.shape)
        ]
        terms.append(Term(1, tuple(sides)))
    return Size(terms, len(groups))


def _index(groups: Sequence[Group]) -> dict[int, tuple[int, int]]:
    """Return the group and the unit of each class of labels."""
    return {one: (k, j % group.units) for k, group in enumerate(groups) for j, one in enumerate(group.classes)}


def _side(followed: Followed, labels: Tensor, index: dict[int, tuple[int, int]]) -> Side:
    always, each = 0, defaultdict[int, list[int]](list)
    for one in followed.atoms.classes(labels).tolist():
        if one in index:
            each[index[one][0]].append(index[one][1])
        else:
            always += 1
    return Side(always, tuple((group, len(ones) // len(set(ones))) for group, ones in sorted(each.items())))

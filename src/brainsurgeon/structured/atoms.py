"""Which indices go together: every index of an axis is an atom, and atoms that must go together form a class."""

from __future__ import annotations

import torch
from torch import Tensor

NONE = 0
"""The label of what belongs to no unit: positions, constants, the model's inputs."""


class Atoms:
    """Classes of atoms, with the reason where a class cannot be removed. Labels are tensors of atoms."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}
        self._reason: dict[int, str] = {}
        self._met: set[int] = set()
        self._next = 1

    def fresh(self, count: int) -> Tensor:
        """Return so many new atoms."""
        first, self._next = self._next, self._next + count
        return torch.arange(first, self._next)

    def find(self, atom: int) -> int:
        """Return the class of an atom."""
        while (parent := self._parent.get(atom, atom)) != atom:
            above = self._parent.get(parent, parent)
            self._parent[atom] = above
            atom = parent
        return atom

    def classes(self, labels: Tensor) -> Tensor:
        """Return the classes of labels."""
        values, places = torch.unique(compact(labels), return_inverse=True)
        found = torch.tensor([self.find(atom) if atom else NONE for atom in values.tolist()], dtype=torch.long)
        return found[places].expand(labels.shape) if values.numel() else labels

    def unite(self, one: Tensor, other: Tensor, reason: str) -> None:
        """Let the classes of two label tensors of one shape be the same; what meets no unit is fixed."""
        if not one.numel():
            return
        for axis, (size, *strides) in enumerate(zip(one.shape, one.stride(), other.stride(), strict=True)):
            if size > 1 and not any(strides):  # both lie there expanded
                one, other = one.narrow(axis, 0, 1), other.narrow(axis, 0, 1)
        pairs = torch.unique(torch.stack([one.reshape(-1), other.reshape(-1)]), dim=1)
        for a, b in pairs.T.tolist():
            if a and b:
                self._join(a, b)
            elif a or b:
                self._fix(a or b, reason)

    def fix(self, labels: Tensor, reason: str) -> None:
        """Say that these cannot be removed, and why; the first reason stays."""
        for atom in torch.unique(compact(labels)).tolist():
            if atom:
                self._fix(atom, reason)

    def reason(self, atom: int) -> str | None:
        """Return why an atom's class cannot be removed."""
        return self._reason.get(self.find(atom))

    def _fix(self, atom: int, reason: str) -> None:
        self._reason.setdefault(self.find(atom), reason)

    def varies(self, labels: Tensor, axis: int) -> bool:
        """Say whether the classes of labels differ along an axis."""
        labels = compact(labels)
        if labels.shape[axis] <= 1 or not bool((labels != labels.narrow(axis, 0, 1)).any()):
            return False
        classes = self.classes(labels)
        return bool((classes != classes.narrow(axis, 0, 1)).any())

    def has_met(self, atom: int) -> bool:
        """Say whether an atom was ever united with another."""
        return atom in self._met

    def _join(self, a: int, b: int) -> None:
        self._met |= {a, b}
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        a, b = min(a, b), max(a, b)
        self._parent[b] = a
        reason = self._reason.pop(b, None)
        if reason is not None:
            self._reason.setdefault(a, reason)


def compact(labels: Tensor) -> Tensor:
    """Return labels with size 1 along every axis on which they only lie there expanded."""
    for axis, (size, stride) in enumerate(zip(labels.shape, labels.stride(), strict=True)):
        if size > 1 and stride == 0:
            labels = labels.narrow(axis, 0, 1)
    return labels


def flat_along(atoms: Atoms, labels: Tensor, axes: list[int], reason: str) -> Tensor:
    """Unite labels along axes, which an operation mixes; return them with size 1 there."""
    first = labels
    for axis in axes:
        first = first.narrow(axis, 0, 1)
    if any(atoms.varies(labels, axis) for axis in axes):
        atoms.unite(labels, first.expand(labels.shape), reason)
    return first


def merged(atoms: Atoms, one: Tensor, other: Tensor, reason: str) -> Tensor:
    """Return the labels of an elementwise result.

    An operand that is broadcast along an axis on which the other has several units has a part in each of them: it
    stays, and its own units, if it has any, cannot be removed.
    """
    shape = torch.broadcast_shapes(one.shape, other.shape)
    one, other = (x.reshape((1,) * (len(shape) - x.dim()) + x.shape) for x in (one, other))
    for small, large in ((one, other), (other, one)):
        spread = [a for a, size in enumerate(shape) if small.shape[a] == 1 < size and large.shape[a] > 1]
        if any(atoms.varies(large, axis) for axis in spread):
            atoms.fix(small, reason)
            return large.expand(shape)
    atoms.unite(one.expand(shape), other.expand(shape), reason)
    # Where one has no unit the other is fixed by now: either label will do.
    return one.expand(shape) if bool((compact(one) != NONE).any()) else other.expand(shape)

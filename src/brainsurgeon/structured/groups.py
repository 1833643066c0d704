"""Groups of units: what lies along the same axes of the same tensors, and can be removed one unit at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.structured.atoms import NONE
from brainsurgeon.structured.follow import Followed

Axis = tuple[str, int]
"""A stored tensor's name, and one of its axes."""


@dataclass(frozen=True)
class Group:
    """Units that can be removed: `places` holds, for each axis they lie on, the indices of each unit (units × k).

    `writers` are the weights whose rows they are, `readers` those whose columns they are. `classes` holds the class of
    each unit's labels, and then those of other groups that are `tied` to it, in the same order.
    """

    name: str
    units: int
    places: dict[Axis, Tensor]
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    classes: tuple[int, ...]

    def columns(self, reader: str, axis: int) -> Tensor:
        """Return the indices of each unit along the inputs of a reader."""
        return self.places[reader, axis]


@dataclass(frozen=True)
class Found:
    """The groups of a network, the weights that are left alone with the reason, and where its readers have columns."""

    groups: tuple[Group, ...]
    left: dict[str, str]
    column_axis: dict[str, int]


def tied(groups: Sequence[Group]) -> Group:
    """Return one group whose units are the first of each, the second of each, and so on: they go together."""
    places: dict[Axis, Tensor] = {}
    for axis, indices in (item for group in groups for item in group.places.items()):
        places[axis] = torch.cat([places[axis], indices], 1) if axis in places else indices
    writers, readers = (
        tuple(dict.fromkeys(name for names in each for name in names))
        for each in ([group.writers for group in groups], [group.readers for group in groups])
    )
    classes = tuple(one for group in groups for one in group.classes)
    return replace(groups[0], places=places, writers=writers, readers=readers, classes=classes)


def find_groups(followed: Followed, model: nn.Module, prunable: Collection[str], tied: Iterable[str] = ()) -> Found:
    """Return the groups whose every writer may be pruned and whose every reader can be fitted anew."""
    atoms = followed.atoms
    for name in tied:
        for (held, _), labels in followed.axes.items():
            if held == name:
                atoms.fix(labels, f"{name} is tied to another weight")
    fitted = {layer.name for layer in linear_maps(model, sorted({p.weight for p in followed.products}))}
    rows, columns = defaultdict[int, list[str]](list), defaultdict[int, list[str]](list)
    for product in followed.products:
        if not product.whole or product.weight not in fitted:
            atoms.fix(product.columns, f"it feeds {product.weight}, which is no linear layer or convolution by itself")
        for labels, where in ((product.rows, rows), (product.columns, columns)):
            for one in set(atoms.classes(labels).tolist()) - {NONE}:
                if product.weight not in where[one]:
                    where[one].append(product.weight)
    for one, writers in rows.items():
        if excluded := [name for name in writers if name not in prunable]:
            atoms.fix(torch.tensor([one]), f"{excluded[0]} is not to be pruned")
    groups = _grouped(followed, rows, columns)
    return Found(groups, _left(followed, groups), _column_axes(followed))


def _grouped(followed: Followed, rows: dict[int, list[str]], columns: dict[int, list[str]]) -> tuple[Group, ...]:
    places: dict[int, dict[Axis, list[int]]] = defaultdict(dict)
    for axis, labels in followed.axes.items():
        for index, one in enumerate(followed.atoms.classes(labels).tolist()):
            if one and rows.get(one) and columns.get(one) and followed.atoms.reason(one) is None:
                places[one].setdefault(axis, []).append(index)
    alike: dict[tuple[tuple[Axis, int], ...], list[int]] = defaultdict(list)
    for one, where in places.items():
        alike[tuple((axis, len(indices)) for axis, indices in sorted(where.items()))].append(one)
    found = []
    for signature, members in alike.items():
        if len(members) < 2:
            continue
        table = {axis: torch.tensor([places[one][axis] for one in members]) for axis, _ in signature}
        order = table[next(axis for axis in table if axis[0] == rows[members[0]][0])][:, 0].argsort()
        table = {axis: indices[order] for axis, indices in table.items()}
        classes = tuple(members[k] for k in order.tolist())
        writers, readers = tuple(rows[members[0]]), tuple(columns[members[0]])
        found.append(Group(writers[0].removesuffix(".weight"), len(members), table, writers, readers, classes))
    first = {name: k for k, name in enumerate(product.weight for product in followed.products)}
    return tuple(_named_apart(sorted(found, key=lambda group: first[group.writers[0]])))


def _named_apart(groups: Iterable[Group]) -> Iterator[Group]:
    """Yield the groups with names of their own: parts of one layer's outputs may be read separately."""
    known = Counter[str]()
    for group in groups:
        known[group.name] += 1
        yield group if known[group.name] == 1 else replace(group, name=f"{group.name}#{known[group.name]}")


def _left(followed: Followed, groups: tuple[Group, ...]) -> dict[str, str]:
    """Return the weights of products whose rows are in no group, and why."""
    taken = {writer for group in groups for writer in group.writers}
    left = dict(followed.unknown)
    for product in followed.products:
        if product.weight not in taken and product.weight not in left:
            classes = set(followed.atoms.classes(product.rows).tolist())
            reasons = [followed.atoms.reason(one) for one in sorted(classes)]
            known = next((reason for reason in reasons if reason), None)
            left[product.weight] = known or "its outputs are mixed or normalised as a whole"
    return left


def _column_axes(followed: Followed) -> dict[str, int]:
    """Return the axis of each weight's inputs: the second, or the first of one that is stored inputs first."""
    found = {}
    for product in followed.products:
        classes = followed.atoms.classes(product.columns)
        for axis in (1, 0):
            labels = followed.axes.get((product.weight, axis))
            if labels is not None and torch.equal(followed.atoms.classes(labels), classes):
                found[product.weight] = axis
                break
    return found


def tied_names(model: nn.Module) -> list[str]:
    """Return the names of parameters that have several."""
    names = defaultdict[int, list[str]](list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return [name for several in names.values() if len(several) > 1 for name in several]

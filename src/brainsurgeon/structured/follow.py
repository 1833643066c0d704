"""The units of a network: labels follow the data through a traced graph, and meet in the weights.

Every element of a tensor has the label of the unit it belongs to. A linear layer or convolution gives its outputs new
labels, one a row, and finds those of its columns on its inputs. Operations that only move elements move their labels:
they are run on them. What an operation mixes or adds up becomes one unit; what it does not know stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node, map_arg

from brainsurgeon.structured.atoms import NONE, Atoms, flat_along, merged
from brainsurgeon.structured.tracing import Traced, needed

VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
"""Other shapes of tensors that lie suitably in memory."""


@dataclass
class Held:
    """A parameter or buffer; its elements are atoms of their own until they meet others."""

    name: str
    shape: torch.Size
    first: int

    @cached_property
    def labels(self) -> Tensor:
        """One atom an element."""
        return torch.arange(self.first, self.first + self.shape.numel()).view(self.shape)


@dataclass
class Moved:
    """Elements of a parameter after operations that only move them."""

    held: Held
    labels: Tensor

    @property
    def shape(self) -> torch.Size:
        """Their shape."""
        return self.labels.shape


Value = Tensor | Held | Moved | list[Any] | None
"""The labels of a tensor, a stored tensor, several of these, or None for what is no tensor."""


@dataclass(frozen=True)
class Product:
    """A weight's rows and columns in one call, the multiply-adds of one of each, and if it is used as it is stored."""

    weight: str
    rows: Tensor
    columns: Tensor
    each: int
    whole: bool
    node: Node


@dataclass
class Followed:
    """What was found: the atoms along the axes of stored tensors, the products, other multiply-adds by label."""

    atoms: Atoms
    axes: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    sizes: dict[str, torch.Size] = field(default_factory=dict)
    products: list[Product] = field(default_factory=list)
    other: dict[int, int] = field(default_factory=dict)
    normalised: dict[str, str] = field(default_factory=dict)  # weight → running mean of the norm right behind it
    unknown: dict[str, str] = field(default_factory=dict)  # stored tensor → why its use is not understood

    def mark(self, name: str, axis: int, indices: Tensor, labels: Tensor) -> None:
        """Note the labels along an axis of a stored tensor; several uses make one unit of what they share."""
        key, reason = (name, axis), f"{name} is used in several ways"
        if key not in self.axes:
            self.axes[key] = torch.zeros(self.sizes[name][axis], dtype=torch.long)
        known = self.axes[key][indices]
        seen = known != NONE
        self.atoms.unite(known[seen], labels[seen], reason)
        self.axes[key][indices] = torch.where(seen, known, labels)

    def count(self, labels: Tensor, each: int) -> None:
        """Add so many multiply-adds for each element of a result, by its label."""
        values, counts = torch.unique(labels, return_counts=True)
        for atom, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.other[atom] = self.other.get(atom, 0) + count * each


class Follower:
    """Goes through a graph once."""

    def __init__(self, traced: Traced, shapes: Mapping[str, torch.Size]):
        self.found = Followed(Atoms(), sizes=dict(shapes))
        self.atoms = self.found.atoms
        self.values: dict[Node, Value] = {}
        self._held: list[Held] = []
        self._nodes, self._stored = needed(traced.graph), traced.stored

    def run(self) -> Followed:
        """Follow every node, and settle what the parameters that are used elementwise have come to."""
        from brainsurgeon.structured.rules import rule_of

        for node in self._nodes:
            if node.op == "placeholder":
                self.values[node] = self._placeholder(node)
            elif node.op == "output":
                for given in node.all_input_nodes:
                    for labels in self.tensors(self.values[given]):
                        self.atoms.fix(labels, "its outputs are the model's outputs")
            else:
                self.values[node] = rule_of(node)(self, node)
        for held in self._held:
            self._settle(held)
        return self.found

    def _placeholder(self, node: Node) -> Value:
        shape = _shape(node)
        if shape is None:
            return None
        if node not in self._stored:
            return torch.zeros((), dtype=torch.long).expand(shape)
        held = Held(self._stored[node], shape, int(self.atoms.fresh(1)))
        self.atoms.fresh(shape.numel() - 1)
        self._held.append(held)
        return held

    def _settle(self, held: Held) -> None:
        """Find the axis along which the elements of a parameter have become units."""
        if not held.shape or "labels" not in held.__dict__:
            return
        if not any(self.atoms.has_met(atom) for atom in held.labels.reshape(-1).tolist()):
            return
        classes = self.atoms.classes(held.labels)
        for axis in range(len(held.shape)):
            first = classes.movedim(axis, 0).reshape(held.shape[axis], -1)
            if bool((first == first[:, :1]).all()):
                self.found.mark(held.name, axis, torch.arange(held.shape[axis]), first[:, 0])
                return
        self.atoms.fix(held.labels, f"{held.name} cannot be cut along one axis")

    def labels(self, value: Value) -> Tensor:
        """Return the labels of one tensor."""
        assert value is not None
        assert not isinstance(value, list)
        return value if isinstance(value, Tensor) else value.labels

    def tensors(self, value: Any) -> list[Tensor]:
        """Return the labels of every tensor in a value."""
        if isinstance(value, list | tuple):
            return [labels for part in value for labels in self.tensors(part)]
        return [] if value is None else [self.labels(value)]

    def given(self, node: Node) -> list[Value]:
        """Return the values of a node's inputs."""
        return [self.values[one] for one in node.all_input_nodes]

    def argument(self, node: Node, place: int, name: str = "", default: Any = None) -> Any:
        """Return an argument, with values in place of nodes."""
        given = node.args[place] if place < len(node.args) else node.kwargs.get(name, default)
        return self.values[given] if isinstance(given, Node) else given

    def unknown(self, node: Node, why: str | None = None) -> Value:
        """Leave everything alone that goes into an operation which is not understood."""
        reason = why or f"{node.target} cannot be followed"
        for value in self.given(node):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, Held | Moved):
                    held = part if isinstance(part, Held) else part.held
                    self.found.unknown.setdefault(held.name, reason)
                    for axis, size in enumerate(held.shape):
                        atoms = self.atoms.fresh(size)
                        self.found.mark(held.name, axis, torch.arange(size), atoms)
                        self.atoms.fix(self.found.axes[held.name, axis], reason)
                elif part is not None:
                    self.atoms.fix(part, reason)
        return self.blank(node)

    def blank(self, node: Node) -> Value:
        """Return labels of no unit for whatever a node gives."""
        value = node.meta.get("val")
        if isinstance(value, list | tuple):
            return [_zeros(part) for part in value]
        return _zeros(value)

    def moved(self, node: Node) -> Value:
        """Run an operation that only moves elements on their labels."""
        given = node.all_input_nodes
        values = [self.values[one] for one in given]
        origin = values[0] if len(given) == 1 and isinstance(values[0], Held | Moved) else None
        args, kwargs = map_arg((node.args, node.kwargs), lambda one: self.labels(self.values[one]))
        moves: Any = torch.ops.aten.reshape.default if node.target in VIEWS else node.target
        result = moves(*args, **kwargs)  # labels may lie otherwise than the numbers, and be no view
        result = list(result) if isinstance(result, list | tuple) else result
        if origin is None:
            return result
        held = origin if isinstance(origin, Held) else origin.held
        return [Moved(held, part) for part in result] if isinstance(result, list) else Moved(held, result)

    def product(self, node: Node, x: Tensor, axis: int, weight: Held | Moved, rows_first: bool, bias: Value) -> Tensor:
        """Multiply by a weight along an axis of x: new labels for its rows; return those of the result."""
        out = _shape(node)
        assert out is not None
        axis %= x.dim()
        others = [a for a in range(x.dim()) if a != axis]
        if any(self.atoms.varies(x, a) for a in others) and not self.atoms.varies(x, axis):
            return self._along_another(node, x, axis, weight, out)
        columns = flat_along(self.atoms, x, others, f"{node.name} reads it at several places").reshape(-1)
        sides = (0, 1) if rows_first else (1, 0)
        rows = self.atoms.fresh(weight.shape[sides[0]])
        whole = self._mark_weight(weight, sides, rows, columns)
        kernel = weight.shape[2:].numel()
        positions = out.numel() // rows.numel() if rows_first or kernel == 1 else x.numel() // columns.numel()
        held = weight if isinstance(weight, Held) else weight.held
        self.found.products.append(Product(held.name, rows, columns, positions * kernel, whole, node))
        if bias is not None:
            self.atoms.unite(self.labels(bias), rows, "its bias is shared")
        return rows.view([-1 if a == axis else 1 for a in range(len(out))]).expand(out)

    def _along_another(self, node: Node, x: Tensor, axis: int, weight: Held | Moved, out: torch.Size) -> Tensor:
        """Pass on the units of other axes, which a product leaves alone; its own rows and columns stay."""
        reason = f"{node.name} works along an axis that holds no units"
        first = x.narrow(axis, 0, 1)
        self.found.unknown.setdefault(weight.name if isinstance(weight, Held) else weight.held.name, reason)
        labels = first.expand(out)
        self.found.count(labels, x.shape[axis] * weight.shape[2:].numel())
        return labels

    def _mark_weight(self, weight: Held | Moved, sides: tuple[int, int], rows: Tensor, columns: Tensor) -> bool:
        """Note the labels along the axes of the stored weight; say whether it is used as it is stored."""
        if isinstance(weight, Held):
            for side, labels in zip(sides, (rows, columns), strict=True):
                self.found.mark(weight.name, side, torch.arange(labels.numel()), labels)
            return True
        places = torch.unravel_index(weight.labels - weight.held.first, weight.held.shape)
        for side, labels in zip(sides, (rows, columns), strict=True):
            lines = [place.movedim(side, 0).reshape(labels.numel(), -1) for place in places]
            fitting = [a for a, line in enumerate(lines) if bool((line == line[:, :1]).all())]
            if len(fitting) != 1:
                self.atoms.fix(labels, f"{weight.held.name} is reshaped before it is used")
                continue
            self.found.mark(weight.held.name, fitting[0], lines[fitting[0]][:, 0], labels)
        return False

    def merge(self, labels: list[Tensor], reason: str) -> Tensor:
        """Return the labels of an elementwise operation on several tensors."""
        result = labels[0]
        for other in labels[1:]:
            result = merged(self.atoms, result, other, reason)
        return result


def _shape(node: Node) -> torch.Size | None:
    value = node.meta.get("val")
    return value.shape if isinstance(value, Tensor) else None


def _zeros(value: Any) -> Tensor | None:
    return torch.zeros((), dtype=torch.long).expand(value.shape) if isinstance(value, Tensor) else None


def follow(traced: Traced, shapes: Mapping[str, torch.Size]) -> Followed:
    """Return what must go together in a traced network, whose stored tensors have these shapes."""
    return Follower(traced, shapes).run()

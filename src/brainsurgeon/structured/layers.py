"""What layers with weights do to labels: linear layers, convolutions, embeddings and normalisations."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from brainsurgeon.structured.atoms import flat_along
from brainsurgeon.structured.follow import Follower, Held, Moved, Value
from brainsurgeon.structured.mixing import matrices


def linear(follower: Follower, node: Node) -> Value:
    """Multiply by a weight that is stored rows first."""
    x, weight = follower.argument(node, 0), follower.argument(node, 1)
    if not isinstance(weight, Held | Moved):
        return follower.unknown(node, f"{node.name} has weights that are computed")
    return follower.product(node, follower.labels(x), -1, weight, True, follower.argument(node, 2, "bias"))


def addmm(follower: Follower, node: Node) -> Value:
    """Multiply by a weight that is stored inputs first."""
    bias, x, weight = (follower.argument(node, place) for place in range(3))
    if not isinstance(weight, Held | Moved):
        return follower.unknown(node, f"{node.name} has weights that are computed")
    return follower.product(node, follower.labels(x), -1, weight, False, bias)


def matmul(follower: Follower, node: Node) -> Value:
    """Multiply by a weight, or by another activation."""
    x, other = follower.argument(node, 0), follower.argument(node, 1)
    if isinstance(other, Held | Moved) and len(other.shape) == 2 and not isinstance(x, Held | Moved):
        return follower.product(node, follower.labels(x), -1, other, False, None)
    one, two = follower.labels(x), follower.labels(other)
    return follower.unknown(node) if min(one.dim(), two.dim()) < 2 else matrices(follower, one, two)


def convolution(follower: Follower, node: Node, transposed: bool = False) -> Value:
    """Convolve; a grouped convolution goes group by group."""
    x, weight, bias = (follower.argument(node, place) for place in range(3))
    if not isinstance(weight, Held | Moved):
        return follower.unknown(node, f"{node.name} has weights that are computed")
    labels = follower.labels(x)
    axis = labels.dim() - len(weight.shape) + 1
    groups = follower.argument(node, 6, "groups", 1)
    if groups == 1:
        return follower.product(node, labels, axis, weight, not transposed, bias)
    if (
        transposed
        or not isinstance(weight, Held)
        or any(follower.atoms.varies(labels, a) for a in range(labels.dim()) if a != axis)
    ):
        return follower.unknown(node)
    return _grouped(follower, node, labels, axis, weight, bias, groups)


def _grouped(follower: Follower, node: Node, x: Tensor, axis: int, weight: Held, bias: Value, groups: int) -> Tensor:
    """Let whole groups be units, with their inputs and outputs: for a depthwise convolution these are channels."""
    out = follower.blank(node)
    assert isinstance(out, Tensor)
    rows = follower.atoms.fresh(weight.shape[0])
    columns = x
    for a in [a for a in range(x.dim()) if a != axis]:
        columns = columns.narrow(a, 0, 1)
    both = torch.cat([rows.view(groups, -1), columns.reshape(groups, -1)], 1)
    follower.atoms.unite(both, both[:, :1].expand(both.shape), f"{node.name} reads it beside what belongs to no unit")
    follower.found.mark(weight.name, 0, torch.arange(rows.numel()), rows)
    if bias is not None:
        follower.atoms.unite(follower.labels(bias), rows, "its bias is shared")
    labels = rows.view([-1 if a == axis else 1 for a in range(out.dim())]).expand(out.shape)
    follower.found.count(labels, weight.shape[1:].numel())
    return labels


def embedding(follower: Follower, node: Node) -> Value:
    """Look rows up: their entries are units, the rows themselves are not."""
    weight, out = follower.argument(node, 0), follower.blank(node)
    if not isinstance(weight, Held) or not isinstance(out, Tensor):
        return follower.unknown(node)
    columns = follower.atoms.fresh(weight.shape[1])
    follower.found.mark(weight.name, 1, torch.arange(columns.numel()), columns)
    return columns.expand(out.shape)


def channel_norm(follower: Follower, node: Node) -> Value:
    """Normalise each channel by itself, by stored statistics or its own."""
    x = follower.labels(follower.argument(node, 0))
    axis = 1 if x.dim() > 1 else 0
    channels = flat_along(follower.atoms, x, [a for a in range(x.dim()) if a != axis], "its positions are normalised")
    for place in range(1, 5):
        if (value := follower.argument(node, place)) is not None:
            follower.atoms.unite(follower.labels(value), channels.reshape(-1), "it is normalised beside a constant")
    before, mean = node.args[0], follower.argument(node, 3)
    if isinstance(before, Node) and len(before.users) == 1 and isinstance(mean, Held):
        weight = before.args[1] if len(before.args) > 1 else None
        held = follower.values.get(weight) if isinstance(weight, Node) else None
        if isinstance(held, Held):
            follower.found.normalised[held.name] = mean.name
    return x


def group_norm(follower: Follower, node: Node) -> Value:
    """Normalise groups of channels together: whole groups are units."""
    x, groups = follower.labels(follower.argument(node, 0)), follower.argument(node, 1)
    reason = "it is normalised together with what belongs to no unit"
    channels = flat_along(follower.atoms, x, [a for a in range(x.dim()) if a != 1], reason).reshape(-1)
    parts = channels.view(groups, -1)
    follower.atoms.unite(parts, parts[:, :1].expand(parts.shape), reason)
    for place, name in ((2, "weight"), (3, "bias")):
        if (value := follower.argument(node, place, name)) is not None:
            follower.atoms.unite(follower.labels(value), channels, reason)
    return x


def layer_norm(follower: Follower, node: Node) -> Value:
    """Normalise along the last axes: what is there is one unit."""
    x, shape = follower.labels(follower.argument(node, 0)), follower.argument(node, 1)
    reason = "it is normalised together with what belongs to no unit"
    first = flat_along(follower.atoms, x, list(range(x.dim() - len(shape), x.dim())), reason)
    for place, name in ((2, "weight"), (3, "bias")):
        value = follower.argument(node, place, name)
        if value is not None and not any(follower.atoms.varies(first, axis) for axis in range(first.dim())):
            follower.atoms.unite(follower.labels(value), first.reshape(-1)[:1].expand(shape), reason)
    return x

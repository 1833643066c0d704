"""What each ATen operation does to labels."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from brainsurgeon.structured import layers
from brainsurgeon.structured.atoms import NONE, compact, flat_along
from brainsurgeon.structured.follow import Follower, Held, Moved, Value
from brainsurgeon.structured.mixing import attention
from brainsurgeon.structured.operations import ALONG, ELEMENTWISE, MOVES, POOLS, REDUCTIONS

Rule = Callable[[Follower, Node], Value]


def rule_of(node: Node) -> Rule:
    """Return the rule of a node's operation; one without a rule leaves its inputs alone."""
    if node.target is operator.getitem:
        return _item
    name = _name(node)
    if name in RULES:
        return RULES[name]
    tags = getattr(node.target, "tags", ())
    return _elementwise if torch.Tag.pointwise in tags else _unknown


def _name(node: Node) -> str:
    packet = getattr(node.target, "_overloadpacket", None)
    return "" if packet is None else str(packet).rpartition(".")[2]


def _item(follower: Follower, node: Node) -> Value:
    whole, place = node.args
    values = follower.values[whole]  # type: ignore[index]
    return values[place] if isinstance(values, list) else follower.unknown(node)  # type: ignore[index]


def _unknown(follower: Follower, node: Node) -> Value:
    given = [labels for value in follower.given(node) for labels in follower.tensors(value)]
    if all(not bool((compact(labels) != NONE).any()) for labels in given):
        return follower.blank(node)  # no unit goes in, so that none comes out
    return follower.unknown(node)


def _moves(follower: Follower, node: Node) -> Value:
    return follower.moved(node)


def _joined(follower: Follower, node: Node) -> Value:
    """Join tensors along an axis: what lies along the others goes together in all of them."""
    parts = [follower.labels(follower.values[one]) for one in node.all_input_nodes]
    axis = follower.argument(node, 1, "dim", 0)
    if _name(node) == "stack":
        parts = [part.unsqueeze(axis) for part in parts]
    alike = [part.narrow(axis, 0, 1) for part in parts if part.numel() and not follower.atoms.varies(part, axis)]
    for part in alike[1:]:
        follower.atoms.unite(alike[0], part, "it is joined to what belongs to no unit")
    return follower.moved(node)


def _elementwise(follower: Follower, node: Node) -> Value:
    values = follower.given(node)
    if len(values) == 1 and isinstance(values[0], Moved | Held):
        return _same_elements(follower, node, values[0])
    labels = [one for value in values for one in follower.tensors(value)]
    out = follower.blank(node)
    if not labels or not isinstance(out, Tensor):
        return out
    return follower.merge(labels, "it meets numbers that belong to no unit").expand(out.shape)


def _same_elements(follower: Follower, node: Node, value: Held | Moved) -> Value:
    """Return a copied parameter as itself; a function of it is no weight any more."""
    if _name(node) in ("to", "_to_copy", "clone", "alias", "detach", "detach_", "contiguous", "type_as", "float"):
        return value
    return value.labels


def _pool(follower: Follower, node: Node) -> Value:
    x, out = follower.labels(follower.given(node)[0]), follower.blank(node)
    spatial = [a for a in range(x.dim()) if a > x.dim() - 1 - _spatial(node)]
    first = flat_along(follower.atoms, x, spatial, f"{node.target} mixes positions")
    if isinstance(out, list):
        return [None if part is None else first.expand(part.shape) for part in out]
    return first.expand(out.shape) if isinstance(out, Tensor) else None


def _spatial(node: Node) -> int:
    return int(next(letter for letter in _name(node) if letter.isdigit()))


def _dim(follower: Follower, node: Node) -> Any:
    """Return the argument `dim` of an operation, wherever its schema has it; None where it has none."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    places = [place for place, argument in enumerate(arguments) if argument.name == "dim"]
    return follower.argument(node, places[0], "dim", arguments[places[0]].default_value) if places else None


def _axes(follower: Follower, node: Node, x: Tensor) -> list[int]:
    given = _dim(follower, node)
    if given is None or given == []:
        given = list(range(x.dim()))
    return [axis % x.dim() for axis in ([given] if isinstance(given, int) else given)]


def _reduction(follower: Follower, node: Node) -> Value:
    x, out = follower.labels(follower.given(node)[0]), follower.blank(node)
    if len(follower.given(node)) > 1:  # as max of two tensors
        return _elementwise(follower, node)
    axes = _axes(follower, node, x)
    first = flat_along(follower.atoms, x, axes, f"{node.target} mixes it with others")

    def shaped(part: Tensor | None) -> Tensor | None:
        if part is None or part.dim() == first.dim():
            return None if part is None else first.expand(part.shape)
        return first.squeeze(tuple(axes)).expand(part.shape)

    return [shaped(part) for part in out] if isinstance(out, list) else shaped(out)  # type: ignore[arg-type]


def _along(follower: Follower, node: Node) -> Value:
    x, out = follower.labels(follower.given(node)[0]), follower.blank(node)
    first = flat_along(follower.atoms, x, [_dim(follower, node)], f"{node.target} mixes it with others")
    return [first.expand(p.shape) for p in out] if isinstance(out, list) else first.expand(out.shape)  # type: ignore


def _glu(follower: Follower, node: Node) -> Value:
    """Half of the units gate the other half, each its own."""
    x, axis = follower.labels(follower.argument(node, 0)), follower.argument(node, 1, "dim", -1)
    return follower.merge(list(x.chunk(2, axis)), "it gates what belongs to no unit")


def _prelu(follower: Follower, node: Node) -> Value:
    """Apply a slope to each channel, or one to all."""
    x, slope = follower.labels(follower.argument(node, 0)), follower.labels(follower.argument(node, 1))
    if slope.numel() > 1:
        channels = flat_along(follower.atoms, x, [a for a in range(x.dim()) if a != 1], "its slopes are shared")
        follower.atoms.unite(slope, channels.reshape(-1), "its slopes are shared")
    return x


def _pad(follower: Follower, node: Node) -> Value:
    x, pads, out = follower.labels(follower.argument(node, 0)), follower.argument(node, 1), follower.blank(node)
    assert isinstance(out, Tensor)
    axes = [x.dim() - 1 - k // 2 for k, amount in enumerate(pads) if amount]
    if any(follower.atoms.varies(x, axis) for axis in axes):
        return torch.nn.functional.pad(x, pads, value=NONE)
    for axis in axes:
        x = x.narrow(axis, 0, 1)
    return x.expand(out.shape)


RULES: dict[str, Rule] = {
    **dict.fromkeys(MOVES, _moves),
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(POOLS, _pool),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(ALONG, _along),
    **dict.fromkeys(("cat", "concat", "stack"), _joined),
    "glu": _glu,
    "prelu": _prelu,
    "pad": _pad,
    "constant_pad_nd": _pad,
    "linear": layers.linear,
    "addmm": layers.addmm,
    **dict.fromkeys(("matmul", "mm", "bmm"), layers.matmul),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), layers.convolution),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), partial(layers.convolution, transposed=True)
    ),
    "embedding": layers.embedding,
    "batch_norm": layers.channel_norm,
    "instance_norm": layers.channel_norm,
    "group_norm": layers.group_norm,
    "layer_norm": layers.layer_norm,
    "rms_norm": layers.layer_norm,
    "scaled_dot_product_attention": attention,
}

"""Products of two activations, as in attention: what is multiplied head by head goes head by head."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from brainsurgeon.structured.atoms import NONE, compact, flat_along
from brainsurgeon.structured.follow import Follower, Value

REASON = "it is multiplied by what belongs to no unit"


def matrices(follower: Follower, one: Tensor, other: Tensor) -> Tensor:
    """Return the labels of a product of matrices, batch by batch.

    What is summed over becomes one unit. Rows or columns stay units of their own where the other matrix has none;
    where both have some, each pair of matrices is one unit: a head.
    """
    atoms, out, inner = follower.atoms, _out_shape(one, other), one.shape[-1]
    left, right = flat_along(atoms, one, [-1], REASON), flat_along(atoms, other, [-2], REASON)
    if not _has_units(right):
        labels = left.expand(out)
    elif not _has_units(left):
        labels = right.expand(out)
    else:
        if atoms.varies(left, left.dim() - 2) or atoms.varies(right, right.dim() - 1):
            left, right = flat_along(atoms, left, [-2], REASON), flat_along(atoms, right, [-1], REASON)
        left, right = left.narrow(-2, 0, 1), right.narrow(-1, 0, 1)
        labels = follower.merge([left, right], REASON).expand(out)
    follower.found.count(labels, inner)
    return labels


def attention(follower: Follower, node: Node) -> Value:
    """Follow scaled dot-product attention, with keys and values of fewer heads where it says so."""
    q, k, v = (follower.labels(follower.argument(node, place)) for place in range(3))
    if follower.argument(node, 7, "enable_gqa", False):
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = matrices(follower, q, k.transpose(-2, -1))
    mask = follower.argument(node, 3, "attn_mask")
    if mask is not None:
        scores = follower.merge([scores, follower.labels(mask)], "its mask is of one size")
    scores = flat_along(follower.atoms, scores, [-1], REASON).expand(scores.shape)
    return matrices(follower, scores, v)


def _has_units(labels: Tensor) -> bool:
    return bool((compact(labels) != NONE).any())


def _out_shape(one: Tensor, other: Tensor) -> torch.Size:
    lead = torch.broadcast_shapes(one.shape[:-2], other.shape[:-2])
    return torch.Size((*lead, one.shape[-2], other.shape[-1]))

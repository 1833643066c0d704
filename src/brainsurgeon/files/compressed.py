"""A pruned state dict as bits and values.

A pruned tensor `name` becomes `name::kept`, its mask as bits, and `name::values`, the kept weights in order; a tensor
that shares another's memory is named, not stored again; all others are stored as they are. The pruned weights are +0
when they come back, everything else is bit for bit what was saved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.files import bits
from brainsurgeon.files.checkpoint import place
from brainsurgeon.files.sealed import ADVICE, FileError

KEPT, VALUES = "::kept", "::values"


def compress(state: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what to store, and what to say of it."""
    stored: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    tied: dict[str, str] = {}
    seen: dict[Any, str] = {}
    for name in sorted(
        state, key=lambda name: name not in masks
    ):  # a mask's own name comes before the others tied to it
        tensor = state[name]
        first = seen.setdefault(place(tensor, name), name)
        if "::" in name:
            raise FileError(f"a tensor called {name!r} cannot be stored compressed: save it dense, or rename it")
        if first != name:
            tied[name] = first
        elif name in masks:
            kept = ~masks[name].to(tensor.device)
            stored[name + KEPT], stored[name + VALUES] = bits.encode(~kept), tensor.detach()[kept]
            shapes[name] = list(tensor.shape)
        else:
            stored[name] = tensor
    return stored, {"shapes": shapes, **({"tied": tied} if tied else {})}


def expand(
    stored: Mapping[str, Tensor], info: Mapping[str, Any], room: int = 0
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the state dict and the masks; what a model may take is `room`."""
    shapes, tied = _described(stored, info, room)
    state = {name: tensor for name, tensor in stored.items() if "::" not in name}
    masks: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        values = stored[name + VALUES]
        masks[name] = bits.decode(stored[name + KEPT], shape, name)
        kept = masks[name].numel() - int(masks[name].sum())
        if values.dim() != 1 or len(values) != kept:
            raise FileError(
                f"{name!r} keeps {kept} weights by its mask, and has values of shape {tuple(values.shape)}. {ADVICE}"
            )
        state[name] = torch.zeros(shape, dtype=values.dtype)
        state[name][~masks[name]] = values
    return with_tied(state, tied), masks


def with_tied(state: Mapping[str, Tensor], tied: Any) -> dict[str, Tensor]:
    """Return tensors with those that were stored under another name; refuse names that are not there."""
    sound = isinstance(tied, dict) and all(isinstance(first, str) and first in state for first in tied.values())
    if not sound or any(name in state for name in tied):
        raise FileError(f"the file names a tensor twice, or one that is not there. {ADVICE}")
    return {**state, **{name: state[first] for name, first in tied.items()}}


def _described(
    stored: Mapping[str, Tensor], info: Mapping[str, Any], room: int
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Check that what a file says of itself is sound and names exactly what it holds."""
    shapes, tied = info.get("shapes"), info.get("tied", {})
    if not isinstance(shapes, dict) or not isinstance(tied, dict) or not all(map(is_shape, shapes.values())):
        raise FileError(f"the file does not say the shapes of its pruned tensors. {ADVICE}")
    expected = {name + part for name in shapes for part in (KEPT, VALUES)}
    if found := expected.symmetric_difference(name for name in stored if "::" in name):
        raise FileError(f"the file's description and its tensors differ in {sorted(found)[0]!r}. {ADVICE}")
    plain = {name for name in stored if "::" not in name}
    names = [*plain, *shapes]
    sound = all(isinstance(first, str) and first in names for first in tied.values())
    if not sound or len({*names, *tied}) < len(names) + len(tied):
        raise FileError(f"the file names a tensor twice, or one that is not there. {ADVICE}")
    size = sum(math.prod(shape) * stored[name + VALUES].element_size() for name, shape in shapes.items())
    given = sum(tensor.numel() * tensor.element_size() for tensor in stored.values())
    bits.check_expansion(given, size, room)
    return {name: tuple(shape) for name, shape in shapes.items()}, tied


def is_shape(shape: Any) -> bool:
    """Say whether this is a list of whole, non-negative sides."""
    return isinstance(shape, list) and all(type(side) is int and 0 <= side < 2**48 for side in shape)

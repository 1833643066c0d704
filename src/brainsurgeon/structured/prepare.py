"""A network made ready to shrink: its samples, its groups of units, and what each of them saves."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.checks import check_loss, check_suspects, in_words
from brainsurgeon.network.linear_maps import LinearMap, linear_maps
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.samples.batches import (
    Batch,
    SampleStream,
    batch_size,
    concatenate,
    cut,
    is_tokens,
    regroup,
)
from brainsurgeon.structured.follow import Followed, follow
from brainsurgeon.structured.groups import Group, find_groups, tied_names
from brainsurgeon.structured.sizes import Size, multiply_adds, parameters
from brainsurgeon.structured.tracing import Call, call_of, trace
from brainsurgeon.structured.trial import Numbers, stored_shapes, try_out

TOKENS, IMAGES = 8, 32
"""Samples that go through the network at once: sequences of tokens, and everything else."""
TRACED = 2
"""Samples in the call that is traced: with one, an axis of size 1 could be taken for another."""
OUTPUTS = "its outputs are the model's outputs"


@dataclass(frozen=True)
class Prepared:
    """What a run needs to know before it chooses."""

    surgery: Surgery
    batches: list[Batch]
    call: Call
    followed: Followed
    groups: tuple[Group, ...]
    numbers: tuple[Numbers, ...]
    left: dict[str, str]
    axes: dict[str, int]
    multiply_adds: Size
    parameters: Size

    @property
    def model(self) -> nn.Module:
        """The dense network, in evaluation mode on the device of the work."""
        return self.surgery.batch_loss.model

    @property
    def units(self) -> list[int]:
        """The number of units of each group."""
        return [group.units for group in self.groups]

    def layers(self, model: nn.Module) -> dict[str, LinearMap]:
        """Return the layers that read units, or are fitted anew, of this network or a smaller one."""
        names = dict.fromkeys(product.weight for product in self.followed.products if product.whole)
        return {layer.name: layer for layer in linear_maps(model, list(names))}

    def intercepts(self) -> dict[str, str]:
        """Return where a layer's outputs can be shifted: its bias, or the mean of the normalisation right behind it."""
        found = {}
        for name, layer in self.layers(self.model).items():
            if getattr(layer.module, "bias", None) is not None:
                found[name] = f"{name.removesuffix('weight')}bias"
            elif name in self.followed.normalised:
                found[name] = self.followed.normalised[name]
        return found


def prepare(surgery: Surgery, max_samples: int, batch: int) -> Prepared:
    """Read the samples, trace the network, find its groups and try them out."""
    loss, model = surgery.batch_loss, surgery.batch_loss.model
    batches = read_batches(surgery, max_samples)
    probe = cut(concatenate(batches[:1]), slice(TRACED))
    check_loss(loss, probe)
    check_suspects(loss, batches)
    call = call_of(loss, probe)
    followed = follow(trace(model, call), stored_shapes(model))
    found = find_groups(followed, model, surgery.weights.names, tied_names(model))
    groups, numbers, refused = try_out(model, call, found.groups, found.column_axis)
    refused = {writer: refused[g.name] for g in found.groups if g.name in refused for writer in g.writers}
    weights = dict(model.named_parameters())
    left = {name: reason for name, reason in {**found.left, **refused}.items() if name in weights}
    _check_wanted(surgery, groups, left)
    reported = cut(batches[0], slice(batch))
    with torch.no_grad(), in_words(model, reported, f"the call that is reported on (batch={batch})"):
        loss(reported)
    single = call_of(loss, reported)
    size, _ = count_multiply_adds(model, example_of(call, model), {})
    return Prepared(
        surgery,
        batches,
        single,
        followed,
        tuple(groups),
        tuple(numbers),
        left,
        found.column_axis,
        multiply_adds(followed, groups, size),
        parameters(followed, groups, weights),
    )


def read_batches(surgery: Surgery, count: int) -> list[Batch]:
    """Return so many samples, on the device of the work."""
    if surgery.data is None:
        raise BrainsurgeonError("shrinking needs calibration samples: give data")
    generator = torch.Generator().manual_seed(surgery.seed)
    read = list(SampleStream(surgery.data, generator, surgery.device, keep=0).take(count))
    if not read:
        raise BrainsurgeonError("the data is empty: there is no sample to calibrate on")
    tokens = is_tokens(read[0])
    return list(regroup(read, TOKENS if tokens else IMAGES))


def example_of(call: Call, model: nn.Module) -> Any:
    """Return what a model is called with, as other rooms take it: all by position, or all by keyword."""
    if not call.args or not call.kwargs:
        return dict(call.kwargs) if call.kwargs else call.args
    bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs)
    extra = [name for name, one in bound.signature.parameters.items() if one.kind is one.VAR_KEYWORD]
    given = {name: value for name, value in bound.arguments.items() if name not in extra}
    return {**given, **{name: value for k in extra for name, value in bound.arguments.get(k, {}).items()}}


def _check_wanted(surgery: Surgery, groups: Iterable[Group], left: dict[str, str]) -> None:
    """Refuse by name what was asked for and cannot be followed, and a network with nothing to remove."""
    writers = {writer for group in groups for writer in group.writers}
    wanted = {} if surgery.include is None else {n: left[n] for n in surgery.weights.names if n in left}
    if bad := [f"{name}: {reason}" for name, reason in wanted.items() if reason != OUTPUTS and name not in writers]:
        raise BrainsurgeonError(f"include asks for what cannot be removed: {'; '.join(bad[:3])}: leave it out")
    if not writers:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left.items())[:6])
        raise BrainsurgeonError(f"there is no unit to remove: {reasons or 'no linear layer feeds another'}")


def sample_count(batches: Iterable[Batch]) -> int:
    """Return the number of samples."""
    return sum(map(batch_size, batches))

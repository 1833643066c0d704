"""What a candidate found, kept on disk as soon as it is judged: a run that is resumed does not find it again."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import agreed, broadcast, world_size
from brainsurgeon.network.buffers import lasting, set_buffers
from brainsurgeon.pruning.outcome import Outcome


@dataclass(frozen=True)
class Found:
    """A pruned model with its masks, what the held-out samples say of it, and how it came about."""

    loss: float
    gradients: int
    masks: dict[str, Tensor]
    model: nn.Module
    notes: tuple[str, ...] = ()
    record: dict[str, Any] = field(default_factory=dict)

    def as_outcome(self, names: Sequence[str]) -> Outcome:
        """Return the cut, for a method that begins with one."""
        return Outcome(self.masks, {name: self.model.get_parameter(name).detach().clone() for name in names})


def save_found(store: Any, found: Found) -> None:
    """Keep all of it, as tensors by name."""
    told = {"loss": found.loss, "gradients": found.gradients, "notes": found.notes, "record": found.record}
    text = torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)
    masks = {f"mask/{name}": mask for name, mask in found.masks.items()}
    store.save_part(0, {"told": text} | masks | {f"model/{name}": t for name, t in _tensors(found.model).items()})


def load_found(store: Any, model: nn.Module) -> Found | None:
    """Return what was kept, with its weights in the model; None where there is nothing."""
    stored = store.load_part(0)
    if stored is None:
        return None
    told = json.loads(bytes(stored["told"].tolist()))
    kept = {name.removeprefix("model/"): tensor for name, tensor in stored.items() if name.startswith("model/")}
    with torch.no_grad():
        for name, own in model.named_parameters():
            own.copy_(kept.pop(name))
    set_buffers(model, kept)
    masks = {name.removeprefix("mask/"): mask for name, mask in stored.items() if name.startswith("mask/")}
    return Found(told["loss"], told["gradients"], masks, model, tuple(told["notes"]), told["record"])


def first_found(found: Found | None, model: nn.Module, masks: Iterable[str]) -> Found | None:
    """Return what the first rank has found by itself, on all ranks, with its weights in a model of each; None if none.

    A rank that has found nothing writes into a copy of `model`.
    For methods that share nothing out: their ranks do the same work, but need not end it by the same clock.
    """
    if world_size() == 1:
        return found
    if not agreed(found is not None):
        return None
    if found is None:
        empty = {name: torch.zeros_like(model.get_parameter(name), dtype=torch.bool) for name in masks}
        found = Found(0.0, 0, empty, copy.deepcopy(model))
    with torch.no_grad():
        for own in _tensors(found.model).values():
            own.copy_(broadcast(own.detach().clone(), 0))
    sent = {name: broadcast(found.masks[name].clone(), 0) for name in masks}
    return replace(found, loss=agreed(found.loss), gradients=int(agreed(found.gradients)), masks=sent)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **lasting(model)}

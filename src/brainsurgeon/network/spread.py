"""Models that are spread already: by accelerate over devices, memory and disk, or by FSDP2 in shards over ranks.

For as long as we work their hooks are off, and we fetch full tensors and put them back ourselves, part by part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import fill_shards, gather_shards, is_sharded
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.held import Held, held_in, hold

FSDP = "torch.distributed.fsdp"
WHOLE = "load the model without it, on one device or on the CPU (the layer-wise methods bring a block at a time to it)"


@dataclass(frozen=True)
class Offloaded:
    """A tensor that accelerate keeps in memory or on disk: its collection, and its name there."""

    weights: Any
    name: str
    device: torch.device
    place = "where accelerate keeps them (offload)"

    def fetch(self) -> Tensor:
        """Return a copy of the values."""
        found: Tensor = self.weights[self.name]
        return found.detach().clone()

    def put(self, values: Tensor) -> None:
        """Keep new values where the old ones were: in memory, or in a file of the offload folder."""
        known = getattr(self.weights, "state_dict", self.weights)
        if self.name in known:
            known[self.name] = values.to("cpu", copy=True)
            return
        from accelerate.utils import offload_weight

        offload_weight(values.cpu().contiguous(), self.name, self.weights.save_folder, self.weights.index)


@dataclass(frozen=True)
class Sharded:
    """A parameter in shards over the ranks, as FSDP2 leaves it."""

    parameter: Tensor
    place = "in shards over the ranks (FSDP2)"

    @property
    def device(self) -> torch.device:
        """The device of this rank's shard."""
        return self.parameter.device

    def fetch(self) -> Tensor:
        """Return the whole tensor; all ranks ask for it at once."""
        return gather_shards(self.parameter.detach())

    def put(self, values: Tensor) -> None:
        """Keep this rank's shard of the values."""
        fill_shards(self.parameter.detach(), values)


def holders(model: nn.Module) -> Held:
    """Return who holds those tensors of a model that are not there: its own files, accelerate, or the other ranks."""
    _refuse_others(model)
    return dict(held_in(model)) or {**_offloaded(model), **_sharded(model)}


def is_dispatched(model: nn.Module) -> bool:
    """Say whether accelerate moves what goes through the model to where its layers are."""
    return any("_hf_hook" in module.__dict__ for module in model.modules())


@contextmanager
def taken_over(model: nn.Module) -> Iterator[None]:
    """Work on a spread model in our own way for a while: hooks are off, and its tensors are held for us."""
    if held_in(model) or not (is_dispatched(model) or _shards_of(model)):
        yield
        return
    for module in _shards_of(model):
        module.reshard()  # the last pass may have left some of them whole
    found = holders(model)
    forwards = [(m, m.__dict__["forward"]) for m in model.modules() if {"_hf_hook", "forward"} <= m.__dict__.keys()]
    tables = [table for m in model.modules() for table in (m._forward_pre_hooks, m._forward_hooks)]
    hooks = [(table, dict(table)) for table in tables if any(map(_is_of_fsdp, table.values()))]
    try:
        hold(model, found)
        for module, _ in forwards:
            module.__dict__["forward"] = module._old_forward
        for table, own in hooks:
            for key in [key for key, hook in own.items() if _is_of_fsdp(hook)]:
                del table[key]
        yield
    finally:
        hold(model, {})
        for module, forward in forwards:
            module.__dict__["forward"] = forward
        for table, own in hooks:
            table.clear()
            table.update(own)


def _is_of_fsdp(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith(FSDP)


def _shards_of(model: nn.Module) -> list[Any]:
    """Return the modules that FSDP2 has sharded."""
    return [module for module in model.modules() if any(base.__name__ == "FSDPModule" for base in type(module).__mro__)]


def _sharded(model: nn.Module) -> Held:
    found: Held = {p: Sharded(p) for p in model.parameters() if is_sharded(p)}
    if found and not _shards_of(model):
        raise BrainsurgeonError(f"the model is cut up by tensor parallelism, which cannot be followed: {WHOLE}")
    return found


def _offloaded(model: nn.Module) -> Held:
    found: Held = {}
    for module in model.modules():
        hook = module.__dict__.get("_hf_hook")
        for one in getattr(hook, "hooks", [hook]) if hook is not None else []:
            if getattr(one, "offload", False) and one.weights_map is not None:
                for name, tensor in _placeholders(module, recurse=one.place_submodules):
                    found.setdefault(tensor, _holder(one, name))
    return found


def _placeholders(module: nn.Module, recurse: bool) -> list[tuple[str, Tensor]]:
    named = [*module.named_parameters(recurse=recurse), *module.named_buffers(recurse=recurse)]
    return [(name, tensor) for name, tensor in named if tensor.is_meta]


def _holder(hook: Any, name: str) -> Offloaded:
    weights, device = hook.weights_map, torch.device(hook.execution_device or "cpu")
    while hasattr(weights, "prefix"):
        weights, name = weights.dataset, f"{weights.prefix}{name}"
    known = getattr(weights, "state_dict", weights)
    if name not in known and getattr(weights, "save_folder", None) is None:
        raise BrainsurgeonError(
            f"{name!r} is read from the model's own files, which are not written to: give accelerate an offload folder "
            "(offload_folder=…), where pruned weights can go"
        )
    return Offloaded(weights, name, device)


def _refuse_others(model: nn.Module) -> None:
    """Refuse what spreads a model in ways that we cannot follow."""
    for module in model.modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            raise BrainsurgeonError(
                "the model is wrapped by FSDP's first form, whose flat parameters cannot be followed: shard it with "
                f"torch.distributed.fsdp.fully_shard (FSDP2), or {WHOLE}"
            )
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "ds_id"):
            raise BrainsurgeonError(
                f"parameter {name!r} is partitioned by DeepSpeed, which cannot be followed: {WHOLE}"
            )

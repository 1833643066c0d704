"""Names of parameters without the prefixes that wrappers add, and the rule by which patterns match them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

from torch import nn

from brainsurgeon.errors import BrainsurgeonError

COMPILED = "_orig_mod."
"""What `torch.compile` puts before the names of a module, at any depth."""
PARALLEL = "module."
"""What data-parallel training puts before every name."""

Value = TypeVar("Value")


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside `torch.compile`, `DataParallel` and their like; any other is itself."""
    if not isinstance(model, nn.Module):
        raise BrainsurgeonError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DataParallel", "DistributedDataParallel", "AveragedModel"):
            inner = getattr(model, "module", None)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def plain_name(name: str) -> str:
    """Return a name without what `torch.compile` adds; `get_parameter` finds it either way."""
    return name.replace(COMPILED, "")


def plain_names(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return values under plain names: without `_orig_mod.` anywhere, and without a `module.` that all of them have."""
    found = {plain_name(name): value for name, value in values.items()}
    if found and all(name.startswith(PARALLEL) for name in found):
        found = {name.removeprefix(PARALLEL): value for name, value in found.items()}
    if len(found) < len(values):
        raise BrainsurgeonError("two names are the same without the prefixes of torch.compile: rename one of them")
    return found


def named_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a model by their plain names, one that has several under each."""
    found = unwrapped(model).named_parameters(remove_duplicate=False)
    return {plain_name(name): parameter for name, parameter in found}


def name_matches(rule: str, name: str) -> bool:
    """Say whether a rule means a parameter: its name or a pattern of it, or those of a module around it."""
    if name == rule or name.startswith(f"{rule}."):  # a name may hold the signs of patterns: `a[0].weight`
        return True
    return fnmatchcase(name, rule) or fnmatchcase(name.rpartition(".")[0], rule)


def listed(names: Iterable[str], most: int = 12) -> str:
    """Return the first names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

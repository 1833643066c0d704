"""Models and parameters that cannot be pruned, refused before any work, with what to do instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from brainsurgeon.errors import BrainsurgeonError

REMOVED_BY = {WeightNorm: "torch.nn.utils.remove_weight_norm", SpectralNorm: "torch.nn.utils.remove_spectral_norm"}
"""Old-style normalisations, which make a weight anew before every call, and what takes them off."""


def check_model(model: nn.Module) -> None:
    """Refuse a model whose weights are not there yet, or cannot be exchanged."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise BrainsurgeonError(
                f"{name or 'the model'!r} was compiled by torch.jit, and its weights cannot be exchanged one by one: "
                "prune the Python module that it was made of, then script or trace the pruned one"
            )
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm | SpectralNorm):
                raise BrainsurgeonError(
                    f"the {hook.name} of {name!r} is made anew before every call by an old {type(hook).__name__}: "
                    f"take it off first ({REMOVED_BY[type(hook)]}(module)) and put it back on the pruned model"
                )
    for name, parameter in model.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise BrainsurgeonError(
                f"parameter {name!r} has no shape yet (a lazy layer): run a batch through the model once before pruning"
            )


def check_parameter(name: str, parameter: nn.Parameter, owner: nn.Module, held: bool = False) -> None:
    """Refuse a parameter whose zeros would not be zeros of the weight, or which is no plain tensor of real numbers.

    The values of one that is `held` lie elsewhere.
    """
    if isinstance(owner, parametrize.ParametrizationList):
        raise BrainsurgeonError(
            f"{name!r} is parametrised, so zeros in it are not zeros of the weight: remove the parametrisation "
            "first (torch.nn.utils.parametrize.remove_parametrizations), or exclude it"
        )
    if name.endswith("_orig") and hasattr(owner, name.rpartition(".")[2].replace("_orig", "_mask")):
        raise BrainsurgeonError(
            f"{name!r} already carries a mask of torch.nn.utils.prune: make it permanent first "
            "(torch.nn.utils.prune.remove), or exclude it"
        )
    if parameter.is_meta and not held:
        raise BrainsurgeonError(
            f"parameter {name!r} holds no values (it is on the meta device): load its weights first"
        )
    if parameter.layout != torch.strided:
        raise BrainsurgeonError(
            f"parameter {name!r} is stored as {parameter.layout}, and only dense weights can be pruned: "
            "give it as parameter.to_dense(), or exclude it"
        )
    if not parameter.is_floating_point():
        raise BrainsurgeonError(f"parameter {name!r} is of type {parameter.dtype}; only real weights can be pruned")


def check_memory(chosen: Sequence[tuple[str, nn.Parameter]]) -> None:
    """Refuse parameters that lie on one another in memory: what is written to one would change the other."""
    spans = []
    for name, parameter in chosen:
        reach = sum((side - 1) * step for side, step in zip(parameter.shape, parameter.stride(), strict=True)) + 1
        if reach < parameter.numel():
            raise BrainsurgeonError(
                f"entries of parameter {name!r} share memory with one another (an expanded tensor): "
                "give the parameter memory of its own (clone), or exclude it"
            )
        start = parameter.data_ptr()
        spans.append((str(parameter.device), start, start + reach * parameter.element_size(), name))
    spans.sort()
    for (device, _, end, name), (other_device, start, _, other) in pairwise(spans):
        if device == other_device and start < end:
            raise BrainsurgeonError(
                f"parameters {name!r} and {other!r} share memory, but are two parameters: let both modules hold one "
                "and the same nn.Parameter (tied weights), give each memory of its own (clone), or exclude one"
            )

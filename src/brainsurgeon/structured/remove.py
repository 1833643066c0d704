"""Units removed: every tensor they lie in becomes smaller, and modules are told their new sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.structured.attention import Attention
from brainsurgeon.structured.groups import Axis, Group

CONVOLUTIONS = nn.modules.conv._ConvNd


@dataclass(frozen=True)
class Cuts:
    """What stays: the kept indices along each axis that loses some, and whole numbers that modules hold."""

    kept: dict[Axis, Tensor]
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)


def cuts_of(
    groups: Sequence[Group],
    removed: Sequence[Tensor],
    sizes: Mapping[str, torch.Size],
    numbers: Mapping[tuple[str, str], int] | None = None,
) -> Cuts:
    """Return what stays when the units that are True in `removed` go, group by group."""
    gone: dict[Axis, Tensor] = {}
    for group, units in zip(groups, removed, strict=True):
        for (name, axis), indices in group.places.items():
            mask = gone.setdefault((name, axis), torch.zeros(sizes[name][axis], dtype=torch.bool))
            mask[indices[units].reshape(-1)] = True
    kept = {axis: (~mask).nonzero().squeeze(1) for axis, mask in gone.items() if bool(mask.any())}
    return Cuts(kept, dict(numbers or {}))


@torch.no_grad()
def remove(model: nn.Module, cuts: Cuts) -> nn.Module:
    """Make a model smaller, in place, and give it back."""
    touched: dict[str, None] = {}
    for (name, axis), kept in cuts.kept.items():
        owner, _, own = name.rpartition(".")
        module = model.get_submodule(owner)
        before = getattr(module, own)
        after = before.detach().index_select(axis, kept.to(before.device))
        if isinstance(before, nn.Parameter):
            setattr(module, own, nn.Parameter(after, before.requires_grad))
        else:
            module._buffers[own] = after
        touched[owner] = None
    for name in touched:
        _tell_size(model.get_submodule(name))
    for module in model.modules():
        if isinstance(module, Attention):
            module.num_heads = module.query.out_features // module.head_dim
    for (name, attribute), value in cuts.numbers.items():
        setattr(model.get_submodule(name), attribute, value)
    return model


def _tell_size(module: nn.Module) -> None:
    """Let a module of PyTorch's own know the sizes of its new tensors; others hold no sizes, or are asked later."""
    any_module: Any = module
    weight = getattr(module, "weight", None)
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, CONVOLUTIONS):
        _tell_convolution(module)
    elif isinstance(module, nn.GroupNorm) and weight is not None:
        each = module.num_channels // module.num_groups
        module.num_channels, module.num_groups = len(weight), len(weight) // each
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm) and weight is not None:
        module.normalized_shape = tuple(weight.shape)
    elif isinstance(module, nn.Embedding):
        module.embedding_dim = module.weight.shape[1]
    elif isinstance(module, nn.modules.batchnorm._NormBase):
        held = weight if weight is not None else module.running_mean
        module.num_features = module.num_features if held is None else len(held)
    elif isinstance(module, nn.PReLU):
        module.num_parameters = module.weight.numel()
    elif type(module).__name__ == "Conv1D" and hasattr(module, "nf"):  # as in Hugging Face's GPT-2
        any_module.nx, any_module.nf = any_module.weight.shape


def _tell_convolution(module: Any) -> None:
    rows, columns = (1, 0) if module.transposed else (0, 1)
    if module.groups > 1:
        module.groups = module.weight.shape[0] // (module.out_channels // module.groups)
    module.out_channels = module.weight.shape[rows] * (module.groups if module.transposed else 1)
    module.in_channels = module.weight.shape[columns] * (1 if module.transposed else module.groups)


def widths_without_tensors(model: nn.Module, run: Callable[[nn.Module], Any]) -> dict[tuple[str, str], int]:
    """Return the width that each normalisation without weights or statistics is given, where it says another."""
    found: dict[tuple[str, str], int] = {}
    norms = {m: n for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._NormBase)}

    def note(module: Any, inputs: tuple[Any, ...]) -> None:
        if isinstance(inputs[0], Tensor) and inputs[0].dim() > 1 and inputs[0].shape[1] != module.num_features:
            found[norms[module], "num_features"] = inputs[0].shape[1]

    hooks = [module.register_forward_pre_hook(note) for module in norms if not module.state_dict()]
    try:
        if hooks:
            run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return found


@torch.no_grad()
def silence(model: nn.Module, groups: Sequence[Group], removed: Sequence[Tensor], axes: Mapping[str, int]) -> nn.Module:
    """Set to zero what reads the removed units, in place: the network then does without them, at its full size."""
    for group, units in zip(groups, removed, strict=True):
        for reader in group.readers:
            weight = model.get_parameter(reader)
            gone = group.columns(reader, axes[reader])[units].reshape(-1).to(weight.device)
            weight.index_fill_(axes[reader], gone, 0.0)
    return model

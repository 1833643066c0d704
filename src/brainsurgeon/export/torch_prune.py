"""The masks of `torch.nn.utils.prune`, read and written; there 1 is a weight that is kept."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.utils import prune

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.names import named_parameters, unwrapped
from brainsurgeon.network.zeros import check_masks


def from_torch_prune(model: nn.Module) -> dict[str, Tensor]:
    """Read the masks that `torch.nn.utils.prune` left in a model: True where a weight is removed, by plain name.

    The names are those that the parameters have once `prune.remove` has made the pruning permanent.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    masks = {
        name.removesuffix("_mask"): buffer == 0
        for name, buffer in model.named_buffers(remove_duplicate=False)
        if name.endswith("_mask") and f"{name.removesuffix('_mask')}_orig" in parameters
    }
    if not masks:
        raise BrainsurgeonError("the model carries no masks of torch.nn.utils.prune (no …_orig with its …_mask)")
    return masks


def make_permanent(model: nn.Module) -> dict[str, Tensor]:
    """Read the masks, and make them permanent (`prune.remove`): the weights are plain parameters again, with zeros."""
    masks = from_torch_prune(model)
    for name in masks:
        owner, _, own = name.rpartition(".")
        prune.remove(model.get_submodule(owner), own)
    return masks


def to_torch_prune(model: nn.Module, masks: Mapping[str, Tensor]) -> nn.Module:
    """Put masks into a model as `torch.nn.utils.prune` keeps them, in place; `prune.remove` then works as usual."""
    named, inner = named_parameters(model), unwrapped(model)
    for name, mask in check_masks(model, masks).items():
        places: dict[tuple[nn.Module, str], None] = {}  # a module of two names is met once
        for alias in [other for other, parameter in named.items() if parameter is named[name]]:
            owner, _, own = alias.rpartition(".")
            places[inner.get_submodule(owner), own] = None
        for module, own in places:
            prune.custom_from_mask(module, own, (~mask).to(named[name].device))
    return model

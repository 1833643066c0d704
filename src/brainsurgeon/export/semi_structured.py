"""2:4 weights in torch's semi-structured form, which an NVIDIA GPU from Ampere on multiplies in its sparse units."""

from __future__ import annotations

import copy
import warnings

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.names import unwrapped

HALVES = (torch.float16, torch.bfloat16)
ROWS, COLUMNS = 32, 64
"""What torch's kernels ask of a matrix in half precision: rows and columns are multiples of these."""


def to_semi_structured(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """Return a copy whose 2:4 linear layers compute in torch's semi-structured kernels, and their names.

    The model must be on a CUDA device in float16 or bfloat16. A layer that is not 2:4 along its inputs, or whose sides
    are no multiples of 32 and 64, stays dense. The copy is for inference.
    """
    model = unwrapped(model)
    fitting = [
        name for name, layer in model.named_modules() if type(layer) is nn.Linear and is_two_of_four(layer.weight)
    ]
    if not fitting:
        raise BrainsurgeonError('no linear layer is 2:4 along its inputs: prune with pattern="2:4" first')
    for name in fitting:
        weight = model.get_submodule(name).weight
        assert isinstance(weight, Tensor)
        if not weight.is_cuda or weight.dtype not in HALVES:
            raise BrainsurgeonError(
                "the semi-structured kernels work on a CUDA device in float16 or bfloat16; the weight of "
                f"{name or 'the model'} is {weight.dtype} on {weight.device}: call model.half().cuda() first"
            )
    from torch.sparse import to_sparse_semi_structured

    model, changed = copy.deepcopy(model).eval().requires_grad_(False), []
    for name in fitting:
        layer = model.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        if layer.out_features % ROWS or layer.in_features % COLUMNS:
            continue
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*SparseSemiStructuredTensor")
            sparse = to_sparse_semi_structured(layer.weight.detach().contiguous())
        layer.weight = nn.Parameter(sparse, requires_grad=False)
        changed.append(name)
    return model, changed


def is_two_of_four(weight: Tensor) -> bool:
    """Say whether of any four neighbours along the inputs at least two are zero."""
    if weight.ndim != 2 or weight.shape[1] % 4:
        return False
    return bool(((weight.detach() != 0).unflatten(1, (-1, 4)).sum(-1) <= 2).all())

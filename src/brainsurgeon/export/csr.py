"""Weights as compressed sparse rows, and layers that compute with them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.files.sealed import ADVICE, FileError, read_sealed, write_sealed
from brainsurgeon.network.names import unwrapped
from brainsurgeon.network.zeros import check_masks, count_zeros, zero_masks

PARTS = ("crow", "col", "values")


def to_csr(model: nn.Module, masks: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Return the pruned weights as CSR tensors by name, each with one row an output: a convolution's is out × (in·k·k).

    Kept weights that happen to be zero are stored; `masks` default to the exact zeros of the prunable weights.
    """
    model = unwrapped(model)
    masks = zero_masks(model) if masks is None else check_masks(model, masks)
    count_zeros(model, masks)
    return {name: _csr(model.get_parameter(name).detach(), mask) for name, mask in masks.items()}


def _csr(weight: Tensor, pruned: Tensor) -> Tensor:
    matrix, kept = weight.reshape(len(weight), -1), ~pruned.to(weight.device).reshape(len(weight), -1)
    rows = torch.zeros(len(weight) + 1, dtype=torch.int64, device=weight.device)
    rows[1:] = kept.sum(1).cumsum(0)
    return _checked(rows, kept.nonzero()[:, 1], matrix[kept], matrix.shape)


def _checked(rows: Tensor, columns: Tensor, values: Tensor, shape: Any) -> Tensor:
    """Build a CSR tensor with its indices checked; that PyTorch calls them beta is in our docs, not in every log."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(rows, columns, values, shape, check_invariants=True)


def save_csr(tensors: Mapping[str, Tensor], path: str | Path) -> Path:
    """Write CSR tensors to a safetensors file: `name::crow`, `name::col` (32 bits) and `name::values`."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        parts = (tensor.crow_indices().int(), tensor.col_indices().int(), tensor.values())
        stored |= {f"{name}::{part}": value for part, value in zip(PARTS, parts, strict=True)}
    write_sealed(stored, Path(path), "csr", {"shapes": {name: list(tensor.shape) for name, tensor in tensors.items()}})
    return Path(path)


def load_csr(path: str | Path) -> dict[str, Tensor]:
    """Read what `save_csr` wrote; indices are checked before use."""
    stored, info, _ = read_sealed(Path(path), "csr")
    try:
        tensors = {
            name: _checked(
                stored.pop(f"{name}::crow"), stored.pop(f"{name}::col"), stored.pop(f"{name}::values"), shape
            )
            for name, shape in info["shapes"].items()
        }
    except (KeyError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(f"{path} does not hold sound CSR tensors ({error}). {ADVICE}") from error
    if stored:
        raise FileError(f"{path} holds {next(iter(stored))!r}, which it does not describe. {ADVICE}")
    return tensors


class SparseLinear(nn.Module):
    """A linear layer whose weight is a CSR matrix."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return xWᵀ + b."""
        flat = inputs.flatten(0, -2) if inputs.dim() > 1 else inputs[None]
        outputs = (self.weight @ flat.T).T
        outputs = outputs if self.bias is None else outputs + self.bias
        return outputs.reshape(*inputs.shape[:-1], len(self.weight))


class SparsePointwise(SparseLinear):
    """A 1×1 convolution whose weight is a CSR matrix."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Mix the channels at every place."""
        first = inputs.movedim(-3, 0)  # a batch of images, or a single one
        outputs = self.weight @ first.flatten(1)
        outputs = outputs if self.bias is None else outputs + self.bias[:, None]
        return outputs.reshape(len(outputs), *first.shape[1:]).movedim(0, -3)


def to_sparse_modules(
    model: nn.Module, masks: Mapping[str, Tensor] | None = None, least: float = 0.0
) -> tuple[nn.Module, list[str]]:
    """Return a copy whose pruned linear layers and 1×1 convolutions compute with CSR matrices, and their names.

    Only layers of a sparsity of at least `least` are changed. The copy is for inference; other layers stay dense,
    because PyTorch has no sparse kernel for them.
    """
    model = unwrapped(model)
    masks = zero_masks(model) if masks is None else check_masks(model, masks)
    model, changed = copy.deepcopy(model).eval().requires_grad_(False), []
    for name, mask in masks.items():
        owner, _, own = name.rpartition(".")
        layer: Any = model.get_submodule(owner)
        kind = _sparse_kind(layer)
        if kind is None or own != "weight" or float(mask.float().mean()) < least or not owner:
            continue
        parent, _, place = owner.rpartition(".")
        sparse = kind(_csr(layer.weight.detach(), mask), None if layer.bias is None else layer.bias.detach())
        setattr(model.get_submodule(parent), place, sparse)
        changed.append(owner)
        _unfuse(model, parent)
    return model, changed


def _unfuse(model: nn.Module, name: str) -> None:
    """Keep the encoder layers around a changed one from their fused kernel, which takes dense weights only."""
    parts = name.split(".") if name else []
    for module in (model.get_submodule(".".join(parts[:k])) for k in range(len(parts) + 1)):
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        if isinstance(module, nn.TransformerEncoder):
            module.enable_nested_tensor = module.use_nested_tensor = False


def _sparse_kind(layer: nn.Module) -> type[SparseLinear] | None:
    if type(layer) is nn.Linear:
        return SparseLinear
    if type(layer) is nn.Conv2d and layer.kernel_size == (1, 1) and layer.stride == (1, 1) and layer.groups == 1:
        return SparsePointwise if layer.padding in ((0, 0), "valid") else None
    return None

"""`nn.MultiheadAttention` with its heads apart: its own code takes their width from its inputs, and can lose none."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Attention(nn.Module):
    """Attention of any number of heads, called as `nn.MultiheadAttention` is; four linear layers hold its weights."""

    in_proj_bias = None  # `nn.TransformerEncoderLayer` looks here, and leaves its fused kernel alone

    def __init__(self, width: int, inputs: tuple[int, int, int], heads: int, head_dim: int, bias: bool, dropout: float):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, heads * head_dim, bias) for size in inputs)
        self.out_proj = nn.Linear(heads * head_dim, width, bias)
        self.num_heads, self.head_dim, self.dropout = heads, head_dim, dropout
        self.batch_first, self._qkv_same_embed_dim = False, False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the outputs, and the weights of attention where they are wanted."""
        batched = query.dim() == 3
        inputs = [query, key, value]
        if not batched:
            inputs = [x.unsqueeze(0 if self.batch_first else 1) for x in inputs]
        first, second, third = inputs if self.batch_first else (x.transpose(0, 1) for x in inputs)
        q, k, v = self._split(self.query(first)), self._split(self.key(second)), self._split(self.value(third))
        mask = self._mask(attn_mask, key_padding_mask, q, k)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
            weights = (scores if mask is None else scores + mask).softmax(-1)
            mixed = F.dropout(weights, dropout) @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        found = self.out_proj(mixed.transpose(1, 2).flatten(2))
        found = found if self.batch_first else found.transpose(0, 1)
        if batched:
            return found, weights
        return found.squeeze(0 if self.batch_first else 1), None if weights is None else weights.squeeze(0)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _mask(self, mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        """Return one mask to add: True in either of them means that a key is not seen."""
        found = None
        if mask is not None:
            found = _added(mask, q.dtype)
            found = found.unflatten(0, (-1, self.num_heads)) if found.dim() == 3 else found
        if padding is not None:
            padded = _added(padding, q.dtype).view(q.shape[0], 1, 1, k.shape[2])
            found = padded if found is None else found + padded
        return found


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else mask


def refusal(module: nn.MultiheadAttention) -> str | None:
    """Say why the heads of a module cannot be taken apart, None where they can."""
    if module.bias_k is not None or module.add_zero_attn:
        return "it adds a key and a value of its own (add_bias_kv, add_zero_attn)"
    return None


@torch.no_grad()
def opened(module: nn.MultiheadAttention) -> Attention:
    """Return the same attention, in the same mode, with its weights in four linear layers."""
    width, kinds = module.embed_dim, (module.embed_dim, module.kdim, module.vdim)
    bias = module.in_proj_bias is not None
    found = Attention(width, kinds, module.num_heads, module.head_dim, bias, module.dropout)
    found.batch_first = module.batch_first
    if module._qkv_same_embed_dim:
        assert module.in_proj_weight is not None
        weights: list[Tensor] = list(module.in_proj_weight.chunk(3))
    else:
        weights = [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
    biases = list(module.in_proj_bias.chunk(3)) if module.in_proj_bias is not None else []
    layers = (found.query, found.key, found.value, found.out_proj)
    weights.append(module.out_proj.weight)
    biases += [module.out_proj.bias] if bias else []
    like = module.out_proj.weight
    found.to(device=like.device, dtype=like.dtype).train(module.training)
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight.copy_(weight)
        layer.weight.requires_grad_(module.out_proj.weight.requires_grad)
    for layer, own in zip(layers, biases, strict=False):
        layer.bias.copy_(own)
        layer.bias.requires_grad_(module.out_proj.weight.requires_grad)
    return found


def open_attention(model: nn.Module) -> dict[str, str]:
    """Take the heads of every `nn.MultiheadAttention` apart, in place; return those left, with the reason."""
    left, known = {}, dict[nn.Module, nn.Module]()  # one that has several places stays one
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if type(module) is not nn.MultiheadAttention or not name:
            continue
        reason = refusal(module)
        if reason is None:
            parent, _, own = name.rpartition(".")
            known[module] = known.get(module) or opened(module)
            setattr(model.get_submodule(parent), own, known[module])
        else:
            left[name] = reason
    _keep_from_nesting(model)
    return left


def _keep_from_nesting(model: nn.Module, original: nn.Module | None = None) -> None:
    """Let every `nn.TransformerEncoder` with a layer of ours leave nested tensors alone, others as in the original.

    It asks its first layer for the weights of PyTorch's own attention, and no layer of ours takes such tensors.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.TransformerEncoder):
            if any(isinstance(inner, Attention) for inner in module.modules()):
                module.use_nested_tensor = False
            elif original is not None:
                module.use_nested_tensor = getattr(original.get_submodule(name), "use_nested_tensor", False)


@torch.no_grad()
def closed(module: Attention, original: nn.MultiheadAttention) -> nn.MultiheadAttention:
    """Return PyTorch's own attention with the weights of one that has lost no head."""
    found = copy.deepcopy(original)
    layers = (module.query, module.key, module.value)
    if found._qkv_same_embed_dim:
        assert found.in_proj_weight is not None
        found.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
    else:
        for own, layer in zip((found.q_proj_weight, found.k_proj_weight, found.v_proj_weight), layers, strict=True):
            own.copy_(layer.weight)
    if found.in_proj_bias is not None:
        found.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
        found.out_proj.bias.copy_(module.out_proj.bias)
    found.out_proj.weight.copy_(module.out_proj.weight)
    return found


def close_attention(model: nn.Module, original: nn.Module) -> None:
    """Put PyTorch's own attention back, in place, wherever no head is gone."""
    known = dict[nn.Module, nn.Module]()
    for name, before in original.named_modules(remove_duplicate=False):
        if type(before) is not nn.MultiheadAttention or not name:
            continue
        module = model.get_submodule(name)
        if isinstance(module, Attention) and module.query.out_features == before.embed_dim:
            parent, _, own = name.rpartition(".")
            known[before] = known.get(before) or closed(module, before)
            setattr(model.get_submodule(parent), own, known[before])
    _keep_from_nesting(model, original)

"""Multiply-adds of a forward pass, and how many of them are not with a pruned weight."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from brainsurgeon.network.loss import call
from brainsurgeon.network.modes import evaluated, plain_attention

Place = tuple[int, int]
"""Where a tensor begins in memory, and where it ends."""


class _Counter(TorchDispatchMode):
    """Count the operations that `torch.utils.flop_counter` knows; `of` holds those with each of some weights."""

    def __init__(self, weights: Sequence[Tensor]):
        super().__init__()
        self.total, self.of = 0, dict.fromkeys(map(_place, weights), 0)
        self._in: dict[int, list[Place]] = {}
        for weight in weights:
            self._in.setdefault(weight.untyped_storage().data_ptr(), []).append(_place(weight))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet not in flop_registry:  # a compound operation is taken apart, as PyTorch's own counter does
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        output = func(*args, **kwargs)
        if packet in flop_registry:
            multiply_adds = flop_registry[packet](*args, **kwargs, out_val=output) // 2
            self.total += multiply_adds
            if found := [p for leaf in tree_leaves(args) if isinstance(leaf, Tensor) for p in self._weights(leaf)]:
                self.of[min(found)] += multiply_adds
        return output

    def _weights(self, tensor: Tensor) -> Iterator[Place]:
        """Yield the weight that a tensor is a view of."""
        for place in self._in.get(tensor.untyped_storage().data_ptr(), ()):
            if place[0] <= tensor.data_ptr() < place[1]:
                yield place


def count_multiply_adds(model: nn.Module, example: Any, masks: Mapping[str, Tensor]) -> tuple[int, int]:
    """Return the multiply-adds of one forward pass on the example, and those left without the pruned weights."""
    total, found = multiply_adds_by_weight(model, lambda: call(model, example), list(masks))
    return total, multiply_adds_left(total, found, masks)


def multiply_adds_by_weight(
    model: nn.Module, run: Callable[[], Any], names: Sequence[str]
) -> tuple[int, dict[str, int]]:
    """Return the multiply-adds of what `run` does with a model in evaluation mode: all, and those with each weight."""
    counter = _Counter([model.get_parameter(name) for name in names])
    places = {name: _place(model.get_parameter(name)) for name in names}
    # Attention by plain matrix products: its fused kernels on a CPU are opaque operations.
    plain = sdpa_kernel(SDPBackend.MATH)
    with evaluated(model), torch.no_grad(), plain_attention(), plain, _without_onednn(), counter:
        run()
    return counter.total, {name: counter.of[place] for name, place in places.items()}


def multiply_adds_left(total: int, found: Mapping[str, int], masks: Mapping[str, Tensor]) -> int:
    """Return the multiply-adds without those with a pruned weight."""
    return round(total - sum(found[name] * float(mask.float().mean()) for name, mask in masks.items()))


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Switch oneDNN off: its recurrent kernels are one opaque operation, which else is made of matrix products."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TF32 acceleration")
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _place(weight: Tensor) -> Place:
    """Tell a weight by its memory, in which its views begin: several weights may share a storage."""
    return weight.data_ptr(), weight.data_ptr() + weight.nbytes

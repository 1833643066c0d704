"""The modes of PyTorch that we work in, whichever ones the caller is in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from threading import Lock
from typing import Any

import torch
from torch import nn

from brainsurgeon.network.buffers import buffers_kept

AUTOCAST = ("cpu", "cuda", "mps", "xpu")
"""The devices on which a caller may have autocast on."""


@contextmanager
def own_mode(autocast: bool = False) -> Iterator[None]:
    """Work with gradients, plain attention and no autocast, whatever the caller has set; all of our work is in here.

    Under the caller's `inference_mode` or `no_grad` gradients would be zero. Fused attention turns padded sequences
    into nested tensors, which neither hooks nor gradients can follow. And autocast would round our own algebra; so
    models run in the type of their parameters. A model that enters autocast in its own `forward` does so still, and
    what is training alone keeps the caller's (`autocast`).
    """
    cast = nullcontext() if autocast else without_autocast()
    with torch.inference_mode(False), torch.enable_grad(), plain_attention(), cast:
        yield


@contextmanager
def dense_gradients(model: nn.Module) -> Iterator[None]:
    """Let embeddings have dense gradients for a while: sparse ones can be neither batched nor kept at zero."""
    sparse = [m for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse]
    try:
        for module in sparse:
            module.sparse = False
        yield
    finally:
        for module in sparse:
            module.sparse = True


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Give every module its own training or evaluation mode back at the end."""
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def evaluated(model: nn.Module, device: torch.device | None = None) -> Iterator[None]:
    """Put a model in evaluation mode, on a device if one is named; its modes, buffers and place are its own after."""
    home = next(model.parameters()).device if device is not None else None
    with modes_kept(model):
        try:
            model.eval() if device is None else model.to(device).eval()
            with buffers_kept(model):
                yield
        finally:
            if home is not None:
                model.to(home)


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Let no parameter of a model ask for a gradient for a while."""
    asked = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        model.requires_grad_(False)
        yield
    finally:
        for parameter, wanted in asked.items():
            with torch.inference_mode(parameter.is_inference()):  # elsewhere one made there cannot be told
                parameter.requires_grad_(wanted)


@contextmanager
def without_autocast() -> Iterator[None]:
    """Let every operation work in the type of its inputs, on whichever devices the caller has autocast on."""
    with ExitStack() as stack:
        for kind in filter(torch.is_autocast_enabled, AUTOCAST):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


class _FusedAttention:
    """PyTorch's switch, one for all threads: off while anyone works, and the last one to end gives it back."""

    def __init__(self) -> None:
        self.lock, self.working, self.wanted = Lock(), 0, True

    def off(self) -> None:
        with self.lock:
            if not self.working:
                self.wanted = torch.backends.mha.get_fastpath_enabled()
            self.working += 1
            torch.backends.mha.set_fastpath_enabled(False)

    def back(self) -> None:
        with self.lock:
            self.working -= 1
            if not self.working:
                torch.backends.mha.set_fastpath_enabled(self.wanted)


_fused_attention = _FusedAttention()


@contextmanager
def plain_attention() -> Iterator[None]:
    """Keep `nn.TransformerEncoderLayer` from its fused kernel, which takes no sparse weights and counts as nothing."""
    _fused_attention.off()
    try:
        yield
    finally:
        _fused_attention.back()


@contextmanager
def without_cache(model: nn.Module) -> Iterator[None]:
    """Let a language model keep no keys and values from call to call for a while: one call would change the next."""
    configs = _caching(model)
    try:
        for config in configs:
            config.use_cache = False
        yield
    finally:
        for config in configs:
            config.use_cache = True


def _caching(model: nn.Module) -> list[Any]:
    """Return the settings of a language model, and of its parts, that ask for a cache."""
    found: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    return list({id(config): config for config in found if getattr(config, "use_cache", None) is True}.values())


@contextmanager
def unread_masks() -> Iterator[None]:
    """Keep Hugging Face's models from looking for padding in a batch's mask, which `torch.vmap` cannot show them.

    They look only to leave out a mask that hides nothing, and do not where a graph is traced: so they are told.
    """
    masking = sys.modules.get("transformers.masking_utils")
    own = getattr(masking, "is_tracing", None)
    if own is None:  # no such library in use, or a version that asks otherwise
        yield
        return
    try:
        vars(masking)["is_tracing"] = lambda tensor=None: True
        yield
    finally:
        vars(masking)["is_tracing"] = own


def for_examination(model: nn.Module, device: torch.device) -> nn.Module:
    """Make a copy of our own ready: on a device, in evaluation mode, frozen, with dense gradients, without a cache."""
    model = model.to(device).eval().requires_grad_(False)
    for config in _caching(model):
        config.use_cache = False
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False
    return model

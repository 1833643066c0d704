"""How a GPU rounds products of float32, and whether cuDNN may be used: torch's switches, set for a while.

Torch has two switches for the rounding, and refuses to read the older one where the newer says otherwise. So the newer
is set, which works whichever of them the user has set, and the older with it where it can be read: a model may ask it.
A switch says the same afterwards, but no longer follows a wider one: torch does not tell whether it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def full_precision() -> Iterator[None]:
    """Let no GPU kernel round float32 operands to TF32: in deep networks that alone changes gradients by a tenth."""
    cudnn: Any = torch.backends.cudnn
    with _products("ieee"), _agreeing(cudnn), _set([cudnn.conv, cudnn.rnn], "ieee"):
        yield


@contextmanager
def fast_products() -> Iterator[None]:
    """Let a GPU round the operands of products to TF32: training steps are noisier than that."""
    with _products("tf32"):
        yield


def has_recurrent(model: nn.Module) -> bool:
    """Say whether a model has layers that need `without_cudnn`."""
    return any(isinstance(module, nn.RNNBase) for module in model.modules())


@contextmanager
def without_cudnn() -> Iterator[None]:
    """Do without cuDNN: its recurrent layers have no gradients in eval mode; torch's own have."""
    cudnn: Any = torch.backends.cudnn  # its own `flags` would set much else, and read the older switch
    before = cudnn.enabled
    cudnn.enabled = False
    try:
        yield
    finally:
        cudnn.enabled = before


@contextmanager
def _products(precision: str) -> Iterator[None]:
    matmul: Any = torch.backends.cuda.matmul
    older = _read(torch.get_float32_matmul_precision)
    with _set([matmul], precision):
        if older is not None:
            matmul.allow_tf32 = precision == "tf32"
        try:
            yield
        finally:
            if older == "medium":
                torch.set_float32_matmul_precision(older)
            elif older is not None:
                matmul.allow_tf32 = older == "high"


@contextmanager
def _set(switches: list[Any], precision: str) -> Iterator[None]:
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            switch.fp32_precision = precision
        yield
    finally:
        for switch, own in zip(switches, before, strict=True):
            switch.fp32_precision = own


@contextmanager
def _agreeing(backend: Any) -> Iterator[None]:
    """Let the older switch say no as well."""
    allowed = _read(lambda: backend.allow_tf32)
    if allowed is None:
        yield
        return
    backend.allow_tf32 = False
    try:
        yield
    finally:
        backend.allow_tf32 = allowed


def _read(older: Callable[[], Any]) -> Any:
    """Return what an older switch says, None where the user has set the newer."""
    try:
        return older()
    except RuntimeError:
        return None

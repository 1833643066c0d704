"""Every structure with its data and its loss, shrunk in a moment."""

from __future__ import annotations

from typing import Any

import structures as s
from torch import nn

import brainsurgeon
from brainsurgeon.structured.shrink import shrink
from brainsurgeon.structured.sizes import Side, Size, Term

CASES: dict[str, tuple[type[nn.Module], Any, str]] = {
    "perceptron": (s.Perceptron, s.vectors(), "cross_entropy"),
    "residual": (s.Residual, s.images(), "cross_entropy"),
    "separable": (s.Separable, s.images(), "cross_entropy"),
    "unet": (s.UNet, (s.images()[0], s.images()[0]), "mse"),
    "vision": (s.VisionTransformer, s.images(), "cross_entropy"),
    "shared keys": (s.SharedKeys, s.sequences(), "cross_entropy"),
    "encoder": (s.Encoder, s.sequences(width=8), "cross_entropy"),
    "recurrent": (s.Recurrent, s.sequences(), "cross_entropy"),
}
GROUPS = {
    "perceptron": {"first": 12, "second": 8},
    "residual": {"stem": 4, "inner": 6, "mix": 2},
    "separable": {"stem": 8, "point": 12},
    "unet": {"down": 8, "low": 10, "up": 6},
    "vision": {"attention.qkv": 6, "gate": 10},
    "shared keys": {"q": 2},
    "encoder": {"layer.self_attn.query": 4, "layer.linear1": 16},
    "recurrent": {"middle": 10},
}
QUICK: dict[str, Any] = {"progress": False, "seconds": 0}
UNITS = (6, 5)


def shrunk(case: str, **settings: Any) -> brainsurgeon.ShrinkResult:
    """A case made smaller, without a clock."""
    build, data, loss = CASES[case]
    return shrink(s.seeded(build), data, loss=loss, **{**QUICK, **settings})


def chain() -> Size:
    """Three layers in a row: 4 inputs, two groups between them, 3 outputs."""
    first, second = Side(0, ((0, 1),)), Side(0, ((1, 1),))
    return Size([Term(1, (first, Side(4))), Term(2, (second, first)), Term(1, (Side(3), second))], 2)

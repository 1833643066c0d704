"""What cannot be pruned is refused before any work, with what to do instead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small import network, samples
from torch import nn

import brainsurgeon
from brainsurgeon.errors import BrainsurgeonError


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.filterwarnings("ignore")
def test_old_style_normalisations_are_refused_with_what_takes_them_off(norm: Any) -> None:
    model = nn.Sequential(norm(nn.Linear(6, 12)), nn.Linear(12, 3))
    with pytest.raises(BrainsurgeonError, match=r"torch\.nn\.utils\.remove_(weight|spectral)_norm"):
        brainsurgeon.prune(model, samples(), 0.5, "mp")


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, samples()[0])])
@pytest.mark.filterwarnings("ignore")
def test_compiled_by_jit_is_refused(make: Any) -> None:
    for model in (make(network()), nn.Sequential(make(network()))):
        with pytest.raises(BrainsurgeonError, match=r"torch\.jit"):
            brainsurgeon.prune(model, samples(), 0.5, "mp")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Sequential(nn.LazyLinear(5)), "lazy layer"),
        (lambda: nn.Linear(6, 3, device="meta"), "meta device"),
        (lambda: _with(nn.Parameter(torch.randn(6, 6).to_sparse())), "stored as torch.sparse_coo"),
        (lambda: _with(nn.Parameter(torch.randn(1, 6).expand(6, 6))), "share memory with one another"),
        (lambda: _two_on_one(), "share memory, but are two parameters"),
        (lambda: nn.Sequential(nn.Linear(0, 3)), "nothing to prune"),
        (lambda: 3, "must be a torch.nn.Module"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_parameters_that_cannot_be_pruned_are_refused_before_any_work(make: Any, words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        brainsurgeon.prune(make(), samples(), 0.5, "cbs")


def _with(weight: nn.Parameter) -> nn.Module:
    model = nn.Module()
    model.weight = weight
    return model


def _two_on_one() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    model[1].weight = nn.Parameter(model[0].weight.detach())
    return model

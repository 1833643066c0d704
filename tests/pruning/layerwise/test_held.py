"""Models that lie elsewhere and cannot be gone through block by block are refused in words, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.held import hold


@dataclass
class Kept:
    """Holds one tensor, and is not written to."""

    values: Tensor
    device = torch.device("cpu")
    place = "in a test"

    def fetch(self) -> Tensor:
        return self.values.clone()

    def put(self, values: Tensor) -> None:
        raise AssertionError("nothing is to be written")


def elsewhere(model: nn.Module) -> nn.Module:
    """Take the values of a model's parameters away from it."""
    held = {}
    for name, parameter in list(model.named_parameters()):
        owner, _, own = name.rpartition(".")
        placeholder = nn.Parameter(parameter.detach().to("meta"))
        held[placeholder] = Kept(parameter.detach().clone())
        model.get_submodule(owner)._parameters[own] = placeholder
    hold(model, held)
    return model


class Twice(nn.Module):
    """Both layers are given the same input: no chain leads through them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + self.b(x)


class Past(nn.Module):
    """What comes before the blocks reaches the loss past them, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(3))
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        start = x = torch.tanh(self.first(x))
        for block in self.blocks:
            x = block(x)
        return self.last(x + start)


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(64, 6, generator=generator), torch.randint(3, (64,), generator=generator)


def test_a_list_of_blocks_that_cannot_be_found() -> None:
    model = elsewhere(Twice())
    with pytest.raises(BrainsurgeonError, match=r"no list of blocks was found .* load the model whole"):
        brainsurgeon.prune(model, data(), 0.5, "layerwise", in_place=True)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_costs_that_need_the_whole_network_name_the_way_out() -> None:
    with pytest.raises(BrainsurgeonError, match=r'give costs="none", or load the model whole'):
        brainsurgeon.prune(elsewhere(Past()), data(), 0.5, "layerwise", in_place=True)

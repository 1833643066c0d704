"""The comparisons with proven optima, on problems that take a second."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from brainsurgeon import Surgery
from experiments import exact_blocks, exact_networks
from experiments.networks import curvature_of


@pytest.fixture
def surgery() -> Surgery:
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6, bias=False), torch.nn.Tanh(), torch.nn.Linear(6, 3, bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    data = (torch.randn(60, 8, generator=generator), torch.randint(3, (60,), generator=generator))
    return Surgery(model, data, progress=False, num_gradients=40, loss_samples=40, damping=1e-3)


def test_no_heuristic_is_below_the_optimum(surgery: Surgery) -> None:
    block = exact_blocks.sub_blocks(surgery, 16, 1)[0]
    found = exact_blocks.gaps_of(block, 8, 0.05)
    assert found["selection"]["status"] == "optimal"
    assert all(excess >= -1e-6 for excess in found["selection excess"].values())
    assert found["selection excess"]["mp"] > found["selection excess"]["CBS-S optimum"] - 1e-9


def test_a_whole_network_is_searched_certified_and_tested(surgery: Surgery, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(_: argparse.Namespace) -> Iterator[tuple[str, Surgery, Any]]:
        yield "resnet20", surgery, None

    monkeypatch.setattr(exact_networks, "surgeries", one)
    monkeypatch.setattr(
        exact_networks, "accuracy", lambda model, _: sum(int((p == 0).sum()) for p in model.parameters())
    )
    rows = exact_networks.networks(argparse.Namespace(seconds=0.05))["rows"]
    size = curvature_of(surgery).size
    assert {row["accuracy"] for row in rows} == {-(-7 * size // 10)}  # here: the zeros of the pruned model
    assert all(0 < row["damping share"] <= 1 and row["lower"] <= row["cost"] * (1 + 1e-6) for row in rows)

"""Seconds follow from what was timed: here every single measurement is made to be one second."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon.engine.budget import share_out
from brainsurgeon.network.names import name_matches
from brainsurgeon.pruning.layerwise import timing
from brainsurgeon.pruning.layerwise.method import Layerwise


class Block(nn.Module):
    """Two groups of layers: two that share an input, and one behind them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left, self.right, self.back = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.back(self.left(x) * self.right(x).sigmoid())


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), *(Block(8) for _ in range(4)), nn.Linear(8, 3))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every measurement takes a second, but for layers: one for each row."""
    calls: list[int] = []

    def timed(work: object, device: torch.device, again: bool = True) -> float:
        calls.append(1)
        work()  # type: ignore[operator]
        arguments = getattr(work, "args", ())
        rows = getattr(arguments[0], "weights", None) if arguments else None
        return 1.0 if rows is None else float(rows.shape[0])

    monkeypatch.setattr(timing, "_timed", timed)
    return calls


@pytest.mark.parametrize(("budget", "costs"), [("uniform", "loss"), ("global", "none")])
def test_by_hand(budget: str, costs: str, measured: list[int]) -> None:
    data = torch.randn(320, 5), torch.randint(3, (320,))
    surgery = brainsurgeon.Surgery(network(), data, exclude=["0", "5"], progress=False)
    shares = share_out(budget, 0.5, surgery.weights.parts, name_matches)
    found = timing.seconds_of(surgery, Layerwise(costs=costs), shares)
    passes, batches = 1.0 * 4 + 1, 10  # four blocks and the head, whose layers stay; 320 samples by 32
    assert found["outputs"] == batches * passes
    assert found["costs"] == (4 if costs == "loss" else 1) * passes
    assert found["report"] == passes
    groups, survey = 2.0 * 4, 10 / 4 * passes
    assert found["moments"] == batches * groups + (survey if budget == "global" else 0)
    assert found["layers"] == 12 * 8, "twelve layers of eight rows"
    assert found.get("allocation") == (96 if budget == "global" else None)
    assert len(measured) <= 2 * (1 + 2 + 1) + 2 + 2, "blocks of the same shapes are timed once"


def test_a_network_without_a_chain_is_passed_through_as_a_whole(measured: list[int]) -> None:
    data = torch.randn(64, 5), torch.randint(3, (64,))
    surgery = brainsurgeon.Surgery(nn.Sequential(nn.Linear(5, 3)), data, progress=False)
    shares = share_out("uniform", 0.5, surgery.weights.parts, name_matches)
    found = timing.seconds_of(surgery, Layerwise(), shares)
    assert found == {"costs": 4.0, "moments": 2.0, "layers": 3.0, "outputs": 2.0, "report": 1.0}


def test_wide_layers_follow_from_narrow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "INPUTS", 4)
    monkeypatch.setattr(timing, "_timed", lambda work, device: 3.0 + 2.0 * work.args[0].weights.shape[0])
    surgery = brainsurgeon.Surgery(nn.Linear(8, 10), (torch.randn(9, 8), torch.zeros(9).long()), progress=False)
    found = timing._solutions(surgery, timing.Counter({(1, 10, 8): 2}), lambda problem: None, timing.Pattern())
    assert found == pytest.approx(2 * (3 * 2**3 + 2 * 10 * 2**2))


def test_a_model_on_disk_is_read_too(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from language_folders import small_model, write_folder

    from brainsurgeon.files.language import head_of
    from brainsurgeon.files.on_disk import load_on_disk

    model = load_on_disk(write_folder(tmp_path / "dense", small_model()), None)
    tokens = torch.randint(40, (16, 12))
    surgery = brainsurgeon.Surgery(model, tokens, "next_token", exclude=head_of(model), progress=False)
    shares = share_out("uniform", 0.5, surgery.weights.parts, name_matches)
    found = timing.seconds_of(surgery, Layerwise(pattern="2:4"), shares)
    assert found["reading"] > 0
    assert all(parameter.is_meta for parameter in model.parameters())

"""Which samples are trained on more often: where it is done, by whose word, and within what time."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from cases import every_device
from gradual_cases import data, model
from torch import Tensor, nn

from brainsurgeon import BrainsurgeonError, Surgery, prune
from brainsurgeon.engine.budget import exact_count, share_out
from brainsurgeon.events import silent
from brainsurgeon.events.clock import Clock
from brainsurgeon.network.doubt import doubts, emphasis
from brainsurgeon.network.loss import output_loss
from brainsurgeon.network.names import name_matches
from brainsurgeon.network.trust import AHEAD_DOUBTED
from brainsurgeon.pruning.gradual import emphasis as emphasis_module
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.gradual.run import GradualRun
from brainsurgeon.pruning.outcome import Task
from brainsurgeon.samples.draws import drawn
from brainsurgeon.samples.held_out import EPOCH, TrainingSamples

MANY = 5200
SHORT: dict[str, Any] = {"max_gradients": 6000, "learning_rate": 0.003, "progress": False}


@pytest.mark.parametrize(
    ("samples", "settings", "share"),
    [
        (MANY, {}, 0.25),
        (MANY, {"doubt": 0.2}, 0.2),
        (MANY, {"doubt": 0.0}, 0.0),
        (MANY, {"max_gradients": 4000}, 0.0),  # not even one for each sample
        (200, {}, 0.0),
        (200, {"doubt": 0.3}, 0.3),
    ],
    ids=["many", "given", "unwanted", "few gradients", "few samples", "few, given"],
)
def test_doubt_decides_where_samples_are_many_or_it_is_asked_for(
    samples: int, settings: dict[str, Any], share: float
) -> None:
    result = prune(model(), data(samples), 0.6, "gradual", **SHORT | settings)
    assert result.settings["doubt"] == share
    assert result.pruned == exact_count(0.6, 90)


def test_samples_are_trained_on_as_often_as_their_weight_says() -> None:
    x, y = data(MANY)
    x[:, 0] = torch.arange(MANY) / MANY
    seen: list[float] = []

    def watched(batch: tuple[Tensor, Tensor], _: torch.Generator) -> tuple[Tensor, Tensor]:
        seen.extend(batch[0][:, 0].tolist())
        return batch

    dense = model().eval()
    prune(dense, (x, y), 0.6, "gradual", augment=watched, views=1, **SHORT)
    samples = TrainingSamples((x, y), 0, torch.device("cpu"))
    parts = output_loss("cross_entropy", dense, (x, y))
    assert parts is not None
    weights = emphasis(doubts(parts, dense, samples.in_order()), 0.25)
    generator = torch.Generator().manual_seed(1_000_003 + EPOCH + 1)
    expected = torch.cat([batch[0][:, 0] for batch in samples.in_order()])[drawn(samples.size, generator, weights)]
    assert len(set(seen[: samples.size])) < samples.size  # some more than once
    assert seen[: samples.size] == expected.tolist()


def test_statistics_are_those_of_even_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    original = TrainingSamples.draw_again

    def watched(self: TrainingSamples, count: int, stage: int, weights: Tensor | None = None) -> Any:
        asked.append(weights is not None)
        return original(self, count, stage, weights)

    monkeypatch.setattr(TrainingSamples, "draw_again", watched)
    monkeypatch.setattr("brainsurgeon.pruning.gradual.loop.AVERAGED", 2)
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    prune(network, data(MANY), 0.6, "gradual", **SHORT)
    assert asked == [True, False]


def test_the_dense_network_is_asked_once_about_the_same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counting(*arguments: Any) -> Tensor:
        asked.append(1)
        return doubts(*arguments)

    monkeypatch.setattr(emphasis_module, "doubts", counting)
    samples = TrainingSamples(data(MANY), 0, torch.device("cpu"))
    surgery = Surgery(model(), data(MANY), progress=False)
    shares = share_out("global", 0.6, surgery.weights.parts, name_matches)
    found = []
    for share in (0.5, 0.25):
        clock = Clock(surgery.device, silent)
        task = Task(copy.deepcopy(surgery.original), shares, 0, silent, clock, samples=samples)
        found.append(GradualRun(Gradual(doubt=share), surgery, task))
    assert len(asked) == 1
    assert [run.doubt for run in found] == [0.5, 0.25]
    assert [run.teacher.ahead for run in found] == [AHEAD_DOUBTED] * 2
    assert not torch.equal(found[0].weights, found[1].weights)


def test_other_losses_are_drawn_evenly_and_refused_where_doubt_is_asked_for() -> None:
    x, _ = data(MANY)
    regression = (x, x[:, :3].clone())
    result = prune(model(), regression, 0.6, "gradual", "mse", **SHORT)
    assert result.settings["doubt"] == 0.0
    with pytest.raises(BrainsurgeonError, match="doubt needs a loss of classes"):
        prune(model(), regression, 0.6, "gradual", "mse", doubt=0.5, **SHORT)


def test_without_time_to_ask_all_are_drawn_evenly_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emphasis_module, "seconds_a_sample", lambda *_: 1.0)
    result = prune(model(), data(MANY), 0.6, "gradual", **SHORT, max_seconds=20.0)
    assert result.settings["doubt"] == 0.0
    assert any("no time to ask the dense network" in note for note in result.notes)


def test_a_dense_network_that_is_sure_of_everything_has_all_drawn_evenly() -> None:
    network = nn.Sequential(nn.Linear(6, 3))
    with torch.no_grad():
        network[0].bias.copy_(torch.tensor([1000.0, 0.0, -1000.0]))
    result = prune(network, data(MANY), 0.6, "gradual", **SHORT)
    assert result.settings["doubt"] == 0.0


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(BrainsurgeonError, match="doubt is a share from 0 to 1"):
        Gradual(doubt=share)


@every_device
def test_doubt_is_asked_on_every_device(device: str) -> None:
    result = prune(model().to(device), data(MANY), 0.6, "gradual", **SHORT)
    assert result.settings["doubt"] == 0.25
    assert result.seconds["doubt"] > 0
    assert result.pruned == exact_count(0.6, 90)

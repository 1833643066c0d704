"""One run of gradual pruning: its rate, its gradients and its time, what it is trained on, and how it is resumed."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gradual_cases import FAST, Counting, data, model, run, same, wide
from networks import BY_NAME
from stores import KilledError, Parts
from torch import Tensor, nn
from trained import accuracy, rings, trained

from brainsurgeon import PruningResult, Surgery, prune
from brainsurgeon.engine.budget import exact_count, share_out
from brainsurgeon.events import clock as clock_module
from brainsurgeon.events import silent
from brainsurgeon.network.match import Match
from brainsurgeon.network.names import name_matches
from brainsurgeon.pruning import judging as judging_module
from brainsurgeon.pruning.gradual import loop as loop_module
from brainsurgeon.pruning.gradual import rates as rates_module
from brainsurgeon.pruning.gradual import run as run_module
from brainsurgeon.pruning.gradual.loop import DivergedError
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.outcome import Task
from brainsurgeon.samples.augment import crop_and_flip, warp
from brainsurgeon.samples.held_out import TrainingSamples


@pytest.mark.parametrize("limit", [1, 10, 100, 1000, 6000])
@pytest.mark.parametrize("samples", [30, 400])
@pytest.mark.parametrize("rate", [None, 0.01])
def test_all_gradients_are_counted_and_there_are_no_more_than_allowed(
    limit: int, samples: int, rate: float | None
) -> None:
    """Those of the search for a learning rate among them; most of what is allowed is taken."""
    loss = Counting()
    plain = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    settings = {"max_gradients": limit, "learning_rate": rate, "distil": 0.0, "progress": False}
    result = prune(plain, data(samples), 0.6, "gradual", loss, **settings)
    assert result.settings["sample_gradients"] == loss.samples <= limit
    assert loss.samples > limit - 64
    assert result.pruned == exact_count(0.6, 36)


@pytest.mark.parametrize("limit", [500, 1300, 2000, 6000])
def test_the_search_for_a_learning_rate_takes_a_quarter_of_the_gradients_at_most(limit: int) -> None:
    store = Parts(kill=1)
    with pytest.raises(KilledError):
        Surgery(model(), data(), progress=False).prune(0.6, "gradual", store=store, max_gradients=limit, batch_size=8)
    searched = float(store.parts[0]["searched"])
    assert searched <= limit / 4
    assert (searched > 0) == (limit > 1279)  # where two tries of 20 steps fit in


def test_gradients_of_a_try_that_diverges_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_module, "RATES", (1e-4, 1e-3, 1e-2, 1e25, 1e30))
    loss = Counting()
    settings = {"max_gradients": 4000, "batch_size": 8, "distil": 0.0, "progress": False}
    result = prune(BY_NAME["sequential"].model(), wide(), 0.6, "gradual", loss, **settings)
    assert result.settings["learning_rate"] in (0.7e-4, 0.7e-3, 0.7e-2)  # less than what is best in short runs
    assert result.settings["sample_gradients"] == loss.samples <= 4000


def test_the_rates_of_sgd_are_thirty_times_those_of_adam(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []

    def held(self: Any, steps: int, rate: float, deadline: float) -> float:
        tried.append(rate)
        return abs(rate - 0.06)

    monkeypatch.setattr(run_module.GradualRun, "_try", held)
    result = run(learning_rate=None, optimizer="sgd", max_gradients=10_000)
    assert result.settings["optimizer"] == "sgd"
    assert result.settings["learning_rate"] == pytest.approx(0.7 * 0.06)
    assert tried == pytest.approx([0.18, 0.06, 0.018])


def diverging(monkeypatch: pytest.MonkeyPatch, rates: list[float], steps: int) -> list[tuple[int, float]]:
    """Let long runs with rates above the last of these diverge after some steps; note the steps and rates of all."""
    made: list[tuple[int, float]] = []
    train = run_module.GradualRun._train

    def watched(self: Any, count: int, rate: float, deadline: float, stored: Any = None) -> Any:
        if stored is None:
            return train(self, count, rate, deadline)
        made.append((count, rate))
        if rate > rates[-1]:
            self.gradients += steps * self.batch_size
            raise DivergedError(f"training diverged by step {steps}")
        return train(self, count, rate, deadline, stored)

    monkeypatch.setattr(run_module.GradualRun, "_train", watched)
    return made


def test_a_rate_that_diverges_after_all_is_lowered_and_the_gradients_stay_within_their_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_module.GradualRun, "find_rate", lambda _: 0.1)
    made = diverging(monkeypatch, [0.01], 10)
    result = run(learning_rate=None)  # 600 gradients, 16 a step
    assert made == [(37, 0.1), (27, pytest.approx(0.03)), (17, pytest.approx(0.009))]
    assert result.settings["learning_rate"] == pytest.approx(0.009)
    assert result.settings["sample_gradients"] == 592
    assert [note for note in result.notes if "diverged" in note] == [
        "training diverged with the learning rate 0.1, and began again with 0.03 and 440 of 600 sample gradients",
        "training diverged with the learning rate 0.03, and began again with 0.009 and 280 of 600 sample gradients",
    ]
    assert result.pruned == exact_count(0.6, 90)


@pytest.mark.parametrize(
    ("settings", "steps"), [({"learning_rate": 0.1}, 1), ({"learning_rate": None}, 30)], ids=["given", "late"]
)
def test_a_rate_that_was_given_or_diverges_late_is_told(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], steps: int
) -> None:
    monkeypatch.setattr(run_module.GradualRun, "find_rate", lambda _: 0.1)
    made = diverging(monkeypatch, [0.01], steps)
    with pytest.raises(DivergedError):
        run(**settings)
    assert len(made) == 1


def test_no_held_out_sample_is_ever_trained_on() -> None:
    """Whatever the stage of the run: the first cut, the search for a rate, or training."""
    x, y = data(200)
    x[:, 0] = torch.arange(200)
    seen: set[int] = set()

    class Watching:
        """Notes the samples whose gradients are taken."""

        def __call__(self, batch: tuple[Tensor, Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
            seen.update(batch[0][:, 0].long().tolist())
            return batch

    Surgery(model(), (x, y), seed=5, progress=False).prune(
        0.6, "gradual", augment=Watching(), mix=False, max_gradients=3000, batch_size=16, first_cut=Layerwise()
    )
    held = TrainingSamples((x, y), 5, torch.device("cpu")).held_out()[0][0][:, 0].long().tolist()
    assert len(held) == 40
    assert not seen & set(held)
    assert len(seen) == 160


def test_the_first_cut_is_made_on_training_samples_and_its_mask_stays() -> None:
    samples = TrainingSamples(data(), 0, torch.device("cpu"))
    cut = prune(model(), samples.training(), 0.6, Layerwise(), progress=False)
    result = run(first_cut=Layerwise())
    assert all(torch.equal(mask, cut.masks[name]) for name, mask in result.masks.items())
    assert not torch.equal(result.model[0].weight, cut.model[0].weight)


class Clock:
    """A clock that goes on by `tick` seconds whenever it is looked at."""

    def __init__(self, tick: float):
        self.now, self.tick = 50.0, tick

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now


@pytest.mark.parametrize("tick", [0.1, 0.5, 20.0])
@pytest.mark.parametrize("rate", [None, 0.01])
def test_it_ends_in_time_with_the_exact_count(tick: float, rate: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(tick)
    fake = SimpleNamespace(monotonic=clock.monotonic, perf_counter=clock.monotonic)
    for module in (loop_module, run_module, judging_module, clock_module):
        monkeypatch.setattr(module, "time", fake)
    settings = {"max_gradients": 10**6, "learning_rate": rate, "batch_size": 16, "progress": False}
    result = prune(model(), data(), 0.6, "gradual", max_seconds=20.0, **settings)
    assert clock.now <= 50.0 + 20.0 + 60 * tick  # it looks at the clock a few times after the end, too
    assert result.pruned == exact_count(0.6, 90)
    assert result.settings.get("sample_gradients", 0) < 10**6


@pytest.mark.parametrize("settings", [{}, {"learning_rate": None}, {"first_cut": Layerwise()}], ids=str)
def test_a_run_that_is_killed_goes_on_to_the_same_bits(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the search for a learning rate, and after any step, where every step is stored."""
    monkeypatch.setattr(loop_module, "TOLD", -1.0)
    monkeypatch.setattr(run_module, "SAVED", -1.0)
    chosen = {**FAST, "max_gradients": 1300 if "learning_rate" in settings else 160, **settings}
    chosen.pop("progress")

    def go(store: Parts | None) -> PruningResult:
        return Surgery(model(), data(), progress=False).prune(0.6, "gradual", store=store, **chosen)

    expected, whole = go(None), Parts()
    assert same(go(whole), expected)
    total = len(whole.calls)
    for kill, first in [(1, True), (1, False), (2, False), (total // 2, False), (total // 2, True), (total, False)]:
        store = Parts(kill, first)
        with pytest.raises(KilledError):
            go(store)
        resumed = store.again()
        found = go(resumed)
        assert same(found, expected)
        assert found.settings["sample_gradients"] == expected.settings["sample_gradients"]
        assert found.settings["learning_rate"] == expected.settings["learning_rate"]
        assert len(resumed.calls) == total - kill + first


def test_states_are_stored_no_more_often_than_said() -> None:
    store = Parts()
    Surgery(model(), data(), progress=False).prune(0.6, "gradual", store=store, max_gradients=600, learning_rate=0.01)
    assert store.calls == [0]  # the learning rate; training took less than half a minute


PICTURES = (torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(60) % 3)


@pytest.mark.parametrize(
    ("settings", "warped"),
    [
        ({}, True),
        ({"warp": False}, False),
        ({"mix": False}, False),
        ({"mix": False, "warp": True}, True),
        ({"distil": 0.5}, False),
        ({"augment": crop_and_flip}, False),
    ],
    ids=["few", "unwanted", "unmixed", "wanted", "labels", "augmented"],
)
def test_few_pictures_are_warped_where_the_dense_network_answers_for_all(
    settings: dict[str, Any], warped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[int] = []

    def watched(batch: tuple[Tensor, Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        changed.append(len(batch[0]))
        return warp(batch, generator)

    monkeypatch.setattr("brainsurgeon.pruning.gradual.drawing.warp", watched)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))
    common = {"max_gradients": 320, "learning_rate": 0.01, "batch_size": 16, "progress": False}
    result = prune(network, PICTURES, 0.5, "gradual", **common, **settings)
    assert result.settings["warp"] is warped
    assert sum(changed) >= (320 if warped else 0)
    assert bool(changed) is warped


def test_inputs_that_are_no_pictures_are_not_warped() -> None:
    assert run(100).settings["warp"] is False


def test_pictures_without_targets_are_warped_too() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))
    common = {"max_gradients": 320, "learning_rate": 0.01, "batch_size": 16, "progress": False}
    result = prune(network, PICTURES[0], 0.5, "gradual", "match", **common)
    assert result.settings["warp"] is True
    assert result.pruned == exact_count(0.5, result.size)


def test_a_run_that_goes_on_does_not_make_its_first_cut_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "TOLD", -1.0)
    monkeypatch.setattr(run_module, "SAVED", -1.0)
    made: list[bool] = []
    cut = Layerwise.run
    monkeypatch.setattr(Layerwise, "run", lambda *given: made.append(True) or cut(*given))

    def go(store: Parts) -> PruningResult:
        surgery = Surgery(model(), data(), progress=False)
        return surgery.prune(
            0.6, "gradual", store=store, first_cut=Layerwise(), max_gradients=160, learning_rate=0.01, batch_size=16
        )

    expected = go(Parts())
    for kill, cuts in [(1, 2), (5, 1)]:  # the learning rate alone is stored, or the cut with it
        made.clear()
        store = Parts(kill)
        with pytest.raises(KilledError):
            go(store)
        assert same(go(store.again()), expected)
        assert len(made) == cuts


def test_a_held_out_batch_of_one_number_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """325 samples: 65 are held out, 64 of them in one batch."""
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    x = torch.randn(325, 8, generator=torch.Generator().manual_seed(0))
    held: list[float] = []
    found = run_module.GradualRun._held_loss
    monkeypatch.setattr(run_module.GradualRun, "_held_loss", lambda *a: held.append(found(*a)) or held[-1])
    prune(net, (x, x[:, :1]), 0.5, "gradual", "mse", max_gradients=20_000, progress=False)
    assert held
    assert all(0 < loss < 10 for loss in held)
    single = prune(
        net, (x, x[:, :1]), 0.5, "gradual", "mse", batch_size=1, max_gradients=50, learning_rate=1e-4, progress=False
    )
    assert single.pruned == exact_count(0.5, 144)


class Lengths(nn.Module):
    """A network of sequences with normalisation after the mean over their places."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.register_buffer("mask", torch.ones(1, 8).expand(3, 8))  # it has no memory of its own

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(self.conv(x).mean(2)) * self.mask[0])


@pytest.mark.parametrize("method", ["gradual", "auto"])
def test_samples_of_their_own_lengths_and_expanded_buffers(method: str) -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(1, 4, 6 + k % 23, generator=generator), torch.tensor([k % 3])) for k in range(100)]
    result = prune(Lengths(), batches, 0.5, method, max_gradients=300, progress=False)
    assert result.pruned == exact_count(0.5, 8 * 4 * 3 + 8 * 3)
    assert torch.equal(result.model.get_buffer("mask"), torch.ones(3, 8))


@pytest.mark.parametrize("seed", [2**45, 2**64 - 1, -(2**63)])
def test_any_seed_will_do(seed: int) -> None:
    assert same(run(seed=seed), run(seed=seed))


def test_frozen_normalisation_keeps_its_statistics() -> None:
    net = model()
    net[1].requires_grad_(False)
    result = prune(net, data(), 0.6, "gradual", **FAST)
    assert torch.equal(result.model.get_buffer("1.running_mean"), net.get_buffer("1.running_mean"))


def test_a_loss_that_compares_with_the_dense_network_asks_it_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    wanted = Match.wanted
    monkeypatch.setattr(Match, "wanted", lambda self, batch: asked.append(1) or wanted(self, batch))
    x = data(5200)[0]
    result = prune(model(), x, 0.6, "gradual", "match", max_gradients=1600, learning_rate=0.01, batch_size=16)
    assert result.settings["lesson"]["while_better"]  # the case in which its own loss is asked for too
    assert len(asked) < 60  # of held-out batches alone; there were 100 steps


def test_rates_that_train_the_network_away_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs are so large that the usual rates of SGD are hundreds of times too high for them."""
    tried: list[float] = []
    network, (inputs, targets) = trained(), rings(0, 500)
    with torch.no_grad():
        network[0].weight /= 16  # type: ignore[index]
    train = run_module.GradualRun._try

    def noted(self: Any, steps: int, rate: float, deadline: float) -> float:
        tried.append(train(self, steps, rate, deadline))
        return tried[-1]

    monkeypatch.setattr(run_module.GradualRun, "_try", noted)
    result = prune(
        network, (16 * inputs, targets), 0.6, "gradual", optimizer="sgd", max_gradients=48_000, progress=False
    )
    away = [loss for loss in tried if loss > 2]
    assert len(away) >= 2 > tried[-1]
    assert accuracy(result.model, (16 * inputs, targets)) > 90
    tried.clear()
    short = prune(
        network, (16 * inputs, targets), 0.6, "gradual", optimizer="sgd", max_gradients=12_000, progress=False
    )
    assert [loss > 2 for loss in tried] == [True, True]
    assert short.settings["learning_rate"] == pytest.approx(rates_module.LONGER * 30 * rates_module.RATES[2])


def test_the_loss_of_nothing_is_that_of_the_biases_alone() -> None:
    network, (inputs, targets) = trained(), rings(0, 6000)
    surgery = Surgery(network, (inputs, targets), progress=False)
    shares = share_out("global", 0.5, surgery.weights.parts, name_matches)
    run = run_module.GradualRun(
        Gradual(), surgery, Task(copy.deepcopy(network), shares, 0, silent, clock_module.Clock())
    )
    held = torch.cat([batch[1] for batch in run.held_out])
    bias = network[2].bias.detach()  # type: ignore[index, union-attr]
    expected = torch.nn.functional.cross_entropy(bias.expand(len(held), 3), held)
    assert run._loss_of_nothing() == pytest.approx(float(expected), rel=1e-5)
    assert bool(network[0].weight.any())  # type: ignore[index, union-attr]
    with torch.no_grad():
        run.dense[2].weight *= -9  # type: ignore[index]
    assert (
        run._loss_of_nothing() == math.inf
    )  # a network that is worse than nothing cannot be told from one trained away

"""Gradual pruning of whole networks: exact, within its gradients and its time, the same again, and resumed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cases import CASES, seeded
from networks import BY_NAME
from staging import trained
from stores import KilledError, Parts
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon import BrainsurgeonError, PruningResult, Surgery, prune
from brainsurgeon.engine.budget import exact_count
from brainsurgeon.events import clock as clock_module
from brainsurgeon.network.distillation import Lesson
from brainsurgeon.pruning import judging as judging_module
from brainsurgeon.pruning.gradual import loop as loop_module
from brainsurgeon.pruning.gradual import run as run_module
from brainsurgeon.pruning.gradual.loop import Plan
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.samples.held_out import TrainingSamples

FAST: dict[str, Any] = {"max_gradients": 600, "learning_rate": 0.01, "batch_size": 16, "progress": False}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Tanh(), nn.Dropout(0.3), nn.Linear(10, 3))


def data(samples: int = 100) -> tuple[Tensor, Tensor]:
    x = seeded(lambda: torch.randn(samples, 6), 1)
    return x, (x[:, 0] > 0).long() + (x[:, 1] + x[:, 2] > 0).long()


def model() -> nn.Module:
    return seeded(network, 0)


def run(samples: int = 100, **settings: Any) -> PruningResult:
    return prune(model(), data(samples), 0.6, "gradual", **{**FAST, **settings})


def same(one: PruningResult, other: PruningResult) -> bool:
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    masks = zip(one.masks.values(), other.masks.values(), strict=True)
    return all(torch.equal(a, b) for a, b in [*pairs, *masks])


@pytest.mark.parametrize("budget", ["global", "uniform", {"0.weight": 0.5}], ids=str)
@pytest.mark.parametrize(
    "settings", [{}, {"returning": False}, {"score_power": 0.0}, {"first_cut": Layerwise()}], ids=str
)
def test_counts_are_exact_for_every_budget(budget: Any, settings: dict[str, Any]) -> None:
    dense = model()
    before = {name: value.clone() for name, value in dense.state_dict().items()}
    result = prune(dense, data(), 0.6, "gradual", budget=budget, **{**FAST, **settings})
    assert result.pruned == exact_count(0.6, 90) == sum(int(mask.sum()) for mask in result.masks.values())
    for name, mask in result.masks.items():
        weight = result.model.get_parameter(name)
        assert (weight[mask] == 0).all()
        assert mask.all() or not torch.equal(weight[~mask], before[name][~mask])
    if isinstance(budget, dict):
        assert int(result.masks["0.weight"].sum()) == 30
    assert all(torch.equal(value, before[name]) for name, value in dense.state_dict().items())


def test_training_repairs_the_cut() -> None:
    """The loss after the cut alone is far worse than after training with cuts."""
    dense, (x, y) = trained()
    cut = prune(dense, (x, y), 0.8, "mp", progress=False)
    result = prune(dense, (x, y), 0.8, "gradual", max_gradients=10_000, progress=False)
    with torch.no_grad():
        before, after = (F.cross_entropy(r.model.eval()(x), y) for r in (cut, result))
    assert after < 0.8 * before


def others(result: PruningResult) -> dict[str, bool]:
    """Which tensors beside the prunable weights are as they were."""
    dense = model().state_dict()
    return {n: torch.equal(v, dense[n]) for n, v in result.model.state_dict().items() if n not in result.masks}


@pytest.mark.parametrize("samples", [100, 5200], ids=["few", "many"])
def test_repair_of_weights_alone_leaves_all_else_to_the_last_bit(samples: int) -> None:
    assert all(others(run(samples, repair="weights")).values())
    moved = others(run(samples, repair="all"))
    assert not any(moved[name] for name in ("0.bias", "1.weight", "1.bias", "4.bias"))


def test_what_the_user_froze_stays_frozen() -> None:
    dense = model()
    dense[1].requires_grad_(False)
    dense[4].bias.requires_grad_(False)
    result = prune(dense, data(), 0.6, "gradual", **FAST)
    for name in ("1.weight", "1.bias", "4.bias"):
        assert torch.equal(result.model.get_parameter(name), dense.get_parameter(name))
    assert not torch.equal(result.model[0].bias, dense[0].bias)
    assert [p.requires_grad for p in result.model.parameters()] == [p.requires_grad for p in dense.parameters()]


@pytest.mark.parametrize("samples", [100, 5200], ids=["few", "many"])
def test_the_same_seed_gives_the_same_bits_whatever_torchs_own_generator_says(samples: int) -> None:
    torch.manual_seed(1)
    one = run(samples, seed=3)
    torch.manual_seed(2)
    assert same(one, run(samples, seed=3))
    assert not same(one, run(samples, seed=4))


@pytest.mark.parametrize("mode", [True, False])
def test_the_mode_of_the_model_is_kept(mode: bool) -> None:
    result = prune(model().train(mode), data(), 0.6, "gradual", **FAST)
    assert all(module.training == mode for module in result.model.modules())


class Counting:
    """A cross entropy that counts the samples whose gradients are taken."""

    def __init__(self) -> None:
        self.samples = 0

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if output.requires_grad:
            output.register_hook(lambda _: self.count(len(target)))
        return F.cross_entropy(output, target)

    def count(self, samples: int) -> None:
        self.samples += samples


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
    monkeypatch.setattr(run_module, "RATES", (1e-4, 1e-3, 1e-2, 1e25, 1e30))
    loss = Counting()
    settings = {"max_gradients": 4000, "batch_size": 8, "distil": 0.0, "progress": False}
    result = prune(BY_NAME["sequential"].model(), wide(), 0.6, "gradual", loss, **settings)
    assert result.settings["learning_rate"] in (0.7e-4, 0.7e-3, 0.7e-2)  # less than what is best in short runs
    assert result.settings["sample_gradients"] == loss.samples <= 4000


def wide() -> tuple[Tensor, Tensor]:
    x, y = data()
    return x[:, :5], y


def test_a_run_that_diverges_is_refused_in_words() -> None:
    with pytest.raises(BrainsurgeonError, match=r"training diverged .* give a lower learning_rate"):
        prune(BY_NAME["sequential"].model(), wide(), 0.6, "gradual", **{**FAST, "learning_rate": 1e30})


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


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_language_models_are_trained_on_their_tokens(name: str) -> None:
    net = BY_NAME[name]
    settings = {"exclude": nn.Embedding, "max_gradients": 100, "learning_rate": 0.01, "progress": False}
    result = prune(net.model(), net.data(), 0.5, "gradual", net.loss, **settings)
    assert result.pruned == exact_count(0.5, result.size)
    assert result.settings["batch_size"] == 8
    assert not result.settings["mixup"]


def test_batches_of_changing_lengths_are_trained_on() -> None:
    """No sample is left out because its batch is not full."""
    lengths = [4, 5, 6, 5, 4, 6]
    batches = [seeded(lambda n=n: torch.randint(23, (5, n)), n) for n in lengths]
    settings = {"exclude": nn.Embedding, "max_gradients": 200, "learning_rate": 0.01, "progress": False}
    result = prune(BY_NAME["llama"].model(), batches, 0.5, "gradual", "next_token", **settings)
    assert result.settings["sample_gradients"] > 100


def test_recurrent_networks_are_trained() -> None:
    case = CASES["lstm"]
    assert prune(case.model(), case.data(), 0.6, "gradual", **FAST).pruned == exact_count(0.6, 175)


def test_samples_and_outputs_are_needed() -> None:
    with pytest.raises(BrainsurgeonError, match="needs training samples"):
        prune(model(), None, 0.5, "gradual")
    case = CASES["dict_batch"]
    with pytest.raises(BrainsurgeonError, match="must see the model's outputs"):
        prune(case.model(), case.data(), 0.5, "gradual", case.loss)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"repair": "biases"}, "repair must be"),
        ({"max_gradients": 0}, "max_gradients must be"),
        ({"max_gradients": True}, "max_gradients must be"),
        ({"max_seconds": 0}, "max_seconds must be positive"),
        ({"distil": 1.5}, "distil is a share"),
        ({"learning_rate": -1.0}, "learning_rate must be positive"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        Gradual(**settings)


def test_what_is_minimised_depends_on_how_many_samples_are_held_out() -> None:
    few, many = run(100), run(5200)
    assert few.settings["lesson"]["share"] == 1.0
    assert few.settings["lesson"]["temperature"] == 4.0
    assert many.settings["lesson"]["share"] == 0.5
    assert (few.settings["lesson"]["while_better"], many.settings["lesson"]["while_better"]) == (False, True)
    assert (few.settings["mixup"], many.settings["mixup"]) == (True, False)
    assert Gradual(distil=0.3, temperature=2.0, features=5.0).lesson(True, True) == Lesson(0.3, 2.0, 5.0)
    assert Gradual(plan=Plan(cuts=3)).plan.cuts == 3

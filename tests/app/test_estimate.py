"""How long a run will take: parts that are known, multiplied as the run multiplies them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small import network, samples

from brainsurgeon.app import estimate as module
from brainsurgeon.app.estimate import estimate_seconds
from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.target import Target
from brainsurgeon.network.sample_loss import BATCH, MODERATE
from brainsurgeon.pruning.surgery import Surgery

CPU = torch.device("cpu")


def estimated(monkeypatch: pytest.MonkeyPatch, count: int = 300, **settings: Any) -> dict[str, float]:
    """With a row in a hundredth of a second, a batch in one, and two seconds to warm up."""
    monkeypatch.setattr(module, "_time_of_gradients", lambda *_: (2.0, 0.01))
    monkeypatch.setattr(module, "_median_time", lambda *_: 1.0)
    target = Target(network(), samples(count))
    recipe = make_recipe({"target": "demo", "sparsity": 0.5, **settings})
    return estimate_seconds(recipe, Surgery(target.model, target.data, target.loss))


def test_gradients_are_counted_by_their_number_and_never_more_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    few = estimated(monkeypatch, method="wf", num_gradients=100)
    assert few["gradients"] == pytest.approx(2.0 + 0.01 * 100)
    many = estimated(monkeypatch, method="wf", num_gradients=5000)
    assert many["gradients"] == pytest.approx(2.0 + 0.01 * 300)


def test_a_search_costs_losses_and_several_sparsities_several_times_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    one = estimated(monkeypatch, method="cbs", num_gradients=100)
    assert one["cbs"] > 0
    three = estimated(monkeypatch, method="cbs", num_gradients=100, sparsity=[0.5, 0.8, 0.9])
    assert three["cbs"] == pytest.approx(3 * one["cbs"])
    assert three["gradients"] == one["gradients"]  # they are shared
    assert "mp" not in estimated(monkeypatch, method="mp")


def test_training_takes_its_gradients_and_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "seconds_of_training", lambda method, *_: method.max_gradients / 100)
    assert estimated(monkeypatch, method="gradual", max_gradients=3000) == {"gradual": pytest.approx(30.0)}
    monkeypatch.setattr(module, "forecast", lambda *_: SimpleNamespace(seconds={"moments": 2.0, "solve": 3.0}))
    assert estimated(monkeypatch, method="auto", max_gradients=500) == {"auto": pytest.approx(5.0 + 5.0)}
    sure = estimated(monkeypatch, 6000, method="auto", max_gradients=200_000)
    assert sure == {"auto": pytest.approx(2000.0)}  # then it tries nothing beside training
    three: dict[str, Any] = {"method": "gradual", "max_gradients": 300, "sparsity": [0.5, 0.7, 0.8]}
    assert estimated(monkeypatch, **three)["gradual"] == pytest.approx(9.0)
    assert estimated(monkeypatch, **three, sweep=True)["gradual"] == pytest.approx(3.0)  # its legs share the gradients
    limited = estimated(monkeypatch, method="gradual", max_gradients=3000, max_seconds=5)
    assert limited["gradual, at most"] == 5.0


def test_stages_take_their_gradients_and_no_more_than_the_samples_give(monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimated(monkeypatch, method="staged", max_gradients=500)["staged"] == pytest.approx(5.0)
    most = make_recipe({"target": "demo", "method": "staged"}).make_methods()["staged"].schedule.total * 300
    assert estimated(monkeypatch, method="staged", max_gradients=10**9)["staged"] == pytest.approx(0.01 * most)


def test_auto_without_training_takes_its_layers_and_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "forecast", lambda *_: SimpleNamespace(seconds={"moments": 2.0, "solve": 3.0}))
    search = estimated(monkeypatch, method="cbs", num_gradients=1000)
    quick = estimated(monkeypatch, method="auto", effort="quick")
    assert quick["auto"] > 5.0 + search["gradients"]
    monkeypatch.setattr(module, "SMALL", 10)
    assert estimated(monkeypatch, method="auto", effort="quick") == {"auto": 5.0}


def test_a_race_halves_its_runners_and_doubles_its_batches() -> None:
    """Four runners on 1, 2, 4, … batches: 4·1 + 2·1 are looked at where the second round decides."""
    assert module._race(1, 10, 1e30) == 1
    assert module._race(4, 2, 1e30) == 4 * 1 + 2 * 1
    assert module._race(4, 1, 1e30) == 4
    assert module._race(2, 100, 1e-30) == 2 * 100  # all at once, where a batch costs nothing
    assert module._batches_of_update(2 * BATCH, 1e30) > MODERATE


def test_times_are_medians_of_runs_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first takes a hundred seconds, the others one, two, three, … until patience is at an end."""
    durations, now = iter([100.0, 1.0, 2.0, 3.0, 4.0]), [0.0]

    def work() -> None:
        now[0] += next(durations)

    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    assert module._median_time(work, CPU) == 2.0
    assert next(durations) == 3.0

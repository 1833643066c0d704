"""What a run would prune, layer by layer, is what it prunes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from small import network, samples
from torch import nn

import brainsurgeon
from brainsurgeon.app import forecast as module
from brainsurgeon.app.forecast import _evenly, inspect
from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.target import Target
from brainsurgeon.engine.budget import Share


def foreseen(**settings: Any) -> Any:
    recipe = make_recipe({"target": "demo", "method": "mp", "sparsity": 0.5, **settings})
    return inspect(recipe, Target(network(), samples(100)), timed=False)


@pytest.mark.parametrize("budget", ["global", "uniform"])
def test_the_counts_are_those_of_magnitude_pruning(budget: str) -> None:
    found = foreseen(budget=budget, exclude=[])
    result = brainsurgeon.prune(network(), None, 0.5, "mp", budget=budget)
    expected = {layer.name: layer.pruned for layer in result.layers}
    assert {plan.name: plan.pruned for plan in found.layers if plan.pruned is not None} == expected
    assert (found.count, found.size) == (result.pruned, result.size) == (54, 108)
    assert [plan.name for plan in found.layers if plan.pruned is None] == ["0.bias", "2.bias"]


def test_blocks_are_those_of_the_method_and_nothing_is_timed_that_is_not_asked_for() -> None:
    whole, layers = foreseen(method="cbs", blocks="model"), foreseen(method="cbs", blocks="layer")
    assert (whole.blocks, whole.widest) == (1, 108)
    assert (layers.blocks, layers.widest) == (2, 72)
    assert whole.seconds == {}
    assert foreseen(method="cbs", num_gradients=100).memory["gradients"] == 100 * 108 * 4


def test_what_does_not_fit_is_a_problem_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brainsurgeon.app.forecast.available_bytes", lambda device: 1000)
    found = foreseen(method="cbs")
    assert "1000 bytes are free" in found.problem
    assert not foreseen(method="cbs").seconds


def test_of_several_methods_the_one_that_needs_most_is_told() -> None:
    both, dear = foreseen(method=["mp", "cbs"], num_gradients=100), foreseen(method="cbs", num_gradients=100)
    assert both.memory == dear.memory


def test_counts_in_proportion_to_sizes_add_up() -> None:
    share = Share((("a", 0, 7), ("b", 7, 7), ("c", 14, 6)), 10)
    assert sum(_evenly(share).values()) == 10
    assert all(3 <= count <= 4 for count in _evenly(share).values())


def test_each_kind_of_method_is_timed_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer-wise ones by their own forecast, those that take gradients by these, and magnitude not at all."""
    monkeypatch.setattr(module, "estimate_seconds", lambda *_: {"gradients": 3.0})
    monkeypatch.setattr(module, "forecast", lambda *_: SimpleNamespace(seconds={"moments": 2.0}))

    def seconds(**settings: Any) -> dict[str, float]:
        recipe = make_recipe({"target": "demo", "sparsity": [0.5, 0.8], **settings})
        return inspect(recipe, Target(network(), samples(100))).seconds

    assert seconds(method="mp") == {}
    assert seconds(method="layerwise") == {"moments": 4.0}
    assert seconds(method="wf") == {"gradients": 3.0}
    assert seconds(method=["wf", "layerwise"]) == {"layerwise: moments": 4.0, "gradients": 3.0}


@pytest.mark.parametrize("method", ["cbs", "staged"])
def test_blocks_are_no_wider_than_the_samples_allow(method: str) -> None:
    """Of few samples come few gradients, and a block has at most so many weights for each."""
    model = nn.Sequential(nn.Linear(6, 300), nn.ReLU(), nn.Linear(300, 3))

    def widest(count: int) -> int:
        recipe = make_recipe({"target": "demo", "method": method, "sparsity": 0.5})
        return inspect(recipe, Target(model, samples(count)), timed=False).widest

    assert widest(20) < 2700 == widest(2000)
    if method == "cbs":
        assert widest(20) == 20 * 40
        notes = brainsurgeon.prune(model, samples(20), 0.5, "wf").notes
        assert "the data gave 20 gradients of 1 samples; 1000 were asked for" in notes

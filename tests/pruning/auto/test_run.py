"""Auto: what is tried, exact counts, results within a limit whatever happens, and runs that go on after a kill."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from cases import CASES
from staging import trained
from stores import KilledError, Parts
from torch import Tensor, nn

from brainsurgeon import PruningResult, Surgery, prune
from brainsurgeon.events import Event
from brainsurgeon.events.clock import TimeUp
from brainsurgeon.pruning.auto import candidates as candidates_module
from brainsurgeon.pruning.auto.run import AutoRun
from brainsurgeon.pruning.gradual import loop as loop_module
from brainsurgeon.pruning.gradual import run as gradual_module
from brainsurgeon.pruning.gradual.loop import DivergedError
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.one_shot import OneShot

TRAINED = "layerwise, trained"
"""What trains where steps are few."""


@pytest.fixture(scope="module")
def toy() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return trained()


def run(toy: Any, store: Parts | None = None, **settings: Any) -> PruningResult:
    settings = {"max_gradients": 2000, **settings}
    return Surgery(toy[0], toy[1], progress=False).prune(0.8, "auto", store=store, **settings)


def same(one: PruningResult, other: PruningResult) -> bool:
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs) and one.notes == other.notes and one.settings == other.settings


def test_a_limit_brings_one_shot_methods_among_the_candidates(toy: Any) -> None:
    plain, limited = run(toy), run(toy, max_seconds=60.0)
    assert list(plain.settings["candidates"]) == ["layerwise", TRAINED]
    assert list(limited.settings["candidates"]) == ["mp", "layerwise", "mp+cbs-u", "cbs", TRAINED]
    assert limited.pruned == plain.pruned == 87
    best = min(limited.settings["candidates"].values())
    assert limited.settings["candidates"][limited.settings["chosen"]] == best


def test_a_search_that_would_not_be_finished_is_not_begun(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates_module, "SEARCH_PASSES", 1e12)
    limited = run(toy, max_seconds=60.0)
    assert list(limited.settings["candidates"]) == ["mp", "layerwise", "mp+cbs-u", TRAINED]
    assert any("no time for the search of cbs" in note for note in limited.notes)


def test_with_little_time_the_cut_that_is_there_is_trained(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates_module, "HURRIED", 1e12)
    monkeypatch.setattr(candidates_module, "FEW_SAMPLES_STEPS", 0)
    tried, cuts = Gradual.run, list[Any]()

    def watched(self: Gradual, surgery: Any, task: Any) -> Any:
        cuts.append(task.begun)
        return tried(self, surgery, task)

    monkeypatch.setattr(Gradual, "run", watched)
    limited, plain = run(toy, max_seconds=60.0), run(toy)
    assert list(limited.settings["candidates"])[-2:] == ["layerwise, trained", "gradual"]
    assert [cut is None for cut in cuts] == [False, True, True]
    assert "layerwise, trained" not in plain.settings["candidates"]  # nobody is in a hurry


@pytest.mark.parametrize("effort", ["quick", "standard"])
@pytest.mark.parametrize("limit", [1e-6, 0.02, 0.3, 1.0])
def test_a_limit_is_kept_and_the_count_is_exact(toy: Any, effort: str, limit: float) -> None:
    begun = time.monotonic()
    result = prune(*toy, 0.8, "auto", effort=effort, max_seconds=limit, progress=False)
    assert time.monotonic() - begun < limit + 2.0  # one second is promised; this machine may be busy
    assert (
        result.pruned == 87 == sum(int((result.model.get_parameter(n)[m] == 0).sum()) for n, m in result.masks.items())
    )


@pytest.mark.parametrize("kind", [OneShot, Layerwise, Gradual])
@pytest.mark.parametrize("budget", ["global", "uniform"])
def test_candidates_whose_time_is_up_are_left_out(
    toy: Any, kind: type, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: Any) -> None:
        raise TimeUp

    monkeypatch.setattr(kind, "run", late)
    result = Surgery(*toy, progress=False).prune(0.8, "auto", max_seconds=60.0, max_gradients=1000, budget=budget)
    assert result.pruned == 87
    assert any("was left out: its time was up" in note for note in result.notes)
    names = {OneShot: {"mp", "mp+cbs-u", "cbs"}, Layerwise: {"layerwise"}, Gradual: {TRAINED}}[kind]
    assert set(result.settings["candidates"]) == {"mp", "mp+cbs-u", "cbs", "layerwise", TRAINED} - names


def test_where_nothing_was_found_the_smallest_weights_go(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any) -> None:
        raise TimeUp

    monkeypatch.setattr(AutoRun, "_tried", late)
    result = run(toy, max_seconds=60.0)
    by_magnitude = prune(*toy, 0.8, "mp", progress=False)
    assert all(torch.equal(mask, by_magnitude.masks[name]) for name, mask in result.masks.items())
    assert any("the smallest weights were removed" in note for note in result.notes)


def test_a_layerwise_cut_that_is_not_finished_in_time_is_finished_by_magnitude(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from brainsurgeon.pruning.layerwise.run import LayerRun

    write = LayerRun._write

    def late(self: LayerRun, layer: Any, found: Any) -> Tensor:
        if layer.name == "2.weight":
            raise TimeUp
        return write(self, layer, found)

    monkeypatch.setattr(LayerRun, "_write", late)
    result = Surgery(*toy, progress=False).prune(0.8, "layerwise")
    assert result.pruned == 87
    assert any("not reached in time, so pruned by magnitude: 2.weight" in n for n in result.notes)


@pytest.mark.parametrize("effort", ["quick", "standard"])
def test_a_run_that_is_killed_goes_on_to_the_same_bits(toy: Any, effort: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished candidates are not tried again, and training goes on where it was."""
    monkeypatch.setattr(loop_module, "TOLD", -1.0)
    monkeypatch.setattr(gradual_module, "SAVED", -1.0)
    settings = {"effort": effort} if effort == "quick" else {"effort": effort, "max_gradients": 1500}

    def go(store: Parts | None) -> PruningResult:
        return Surgery(*toy, progress=False).prune(0.8, "auto", store=store, **settings)

    expected, whole = go(None), Parts()
    assert same(go(whole), expected)
    total = len(whole.calls)
    assert total >= 4
    for kill, first in [(1, True), (1, False), (3, False), (total // 2, True), (total, True), (total, False)]:
        store = Parts(kill, first)
        with pytest.raises(KilledError):
            go(store)
        finished = {name.removesuffix("-found") for name, parts in store.children.items() if "-found" in name and parts}
        tried: list[str] = []
        with monkeypatch.context() as patched:
            patched.setattr(AutoRun, "_tried", noting(tried, AutoRun._tried))
            resumed = store.again()
            assert same(go(resumed), expected)
        assert len(resumed.calls) == total - kill + first
        assert tried == [n for n in expected.settings["candidates"] if n.replace(", ", "-") not in finished]


def noting(names: list[str], original: Any) -> Any:
    def tried(run: AutoRun, candidate: Any, store: Any) -> Any:
        names.append(candidate.name)
        return original(run, candidate, store)

    return tried


def test_silence_is_never_long(toy: Any) -> None:
    told: list[Event] = []
    Surgery(*toy, progress=False, callback=told.append).prune(0.8, "auto", max_gradients=1000)
    assert {"plan", "candidates", "layers", "training"} <= {event.stage for event in told}


def test_a_model_without_outputs_to_compare_is_pruned_in_stages() -> None:
    case = CASES["dict_batch"]
    result = prune(case.model(), case.data(), 0.5, "auto", case.loss, max_gradients=300, progress=False)
    assert result.settings["chosen"] in ("layerwise", "mp", "staged")
    assert "staged" in result.settings["candidates"]


def test_what_trains_shares_what_is_held_out(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second split would take a fifth of the training samples away."""

    def split(*_: Any) -> Any:
        raise AssertionError("split again")

    monkeypatch.setattr(gradual_module, "TrainingSamples", split)
    assert TRAINED in run(toy).settings["candidates"]


def test_training_that_diverges_leaves_the_other_candidates(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Gradual, surgery: Any, task: Any) -> Any:
        raise DivergedError("training diverged by step 7")

    monkeypatch.setattr(Gradual, "run", fail)
    result = Surgery(*toy, progress=False).prune(0.8, "auto", max_gradients=1000)
    assert result.settings["chosen"] == "layerwise"
    assert "layerwise, trained was left out: training diverged by step 7" in result.notes
    monkeypatch.setattr(candidates_module, "linear_maps", lambda *_: [])
    monkeypatch.setattr(OneShot, "run", fail)  # nothing is found
    with pytest.raises(DivergedError, match="by step 7"):
        Surgery(*toy, progress=False).prune(0.8, "auto", max_gradients=1000)

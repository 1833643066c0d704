"""What is tried within a limit of time: nothing that would not be finished, or not fit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from cases import seeded
from staging import trained
from torch import Tensor, nn

from brainsurgeon import PruningResult, Surgery
from brainsurgeon.events import silent
from brainsurgeon.events.clock import Clock
from brainsurgeon.pruning.auto import candidates as module
from brainsurgeon.pruning.auto import run as run_module
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.auto.run import AutoRun
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.outcome import Task


@pytest.fixture(scope="module")
def toy() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return trained()


def quick(toy: Any) -> PruningResult:
    return Surgery(*toy, progress=False).prune(0.8, "auto", effort="quick", max_seconds=60.0)


def test_gradients_of_a_candidate_are_bounded_by_memory_too(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, run = list[int](), OneShot.run

    def watched(self: OneShot, surgery: Any, task: Any) -> Any:
        if self.name != "mp":
            rows.append(self.num_gradients)
        return run(self, surgery, task)

    monkeypatch.setattr(OneShot, "run", watched)
    size = Surgery(*toy, progress=False).weights.size
    monkeypatch.setattr(module, "MOST_ENTRIES", 50 * size)
    assert {"mp+cbs-u", "cbs"} <= set(quick(toy).settings["candidates"])
    assert rows == [50, 50]
    monkeypatch.setattr(module, "MOST_ENTRIES", 10 * size)
    assert not {"mp+cbs-u", "cbs"} & set(quick(toy).settings["candidates"])


@pytest.mark.parametrize(("seconds", "fits"), [(1.0, False), (1e-6, True)])
def test_layers_are_solved_on_enough_samples_or_not_at_all(
    toy: Any, monkeypatch: pytest.MonkeyPatch, seconds: float, fits: bool
) -> None:
    """With a second for each sample a few would fit; moments of a few samples are worth nothing."""
    monkeypatch.setattr(module, "seconds_a_sample", lambda *_: seconds)
    monkeypatch.setattr(module, "SEARCH_PASSES", 0)
    result = quick(toy)
    assert ("layerwise" in result.settings["candidates"]) == fits
    assert any("no time for layerwise" in note for note in result.notes) != fits
    assert Layerwise().max_samples > module.LEAST_ROWS


MANY, CUT = 64 * module.FEW_SAMPLES_STEPS, "layerwise, trained"  # the toy has few samples
LONG = 64 * module.LONG


@pytest.mark.parametrize(
    ("gradients", "large", "trained"),
    [
        (MANY - 1, 10**9, {CUT: MANY - 1}),
        (MANY, 10**9, {"gradual": MANY}),
        (MANY, 1, {CUT: MANY // 2, "gradual": MANY // 2}),
        (LONG - 64, 1, {CUT: LONG // 2 - 32, "gradual": LONG // 2 - 32}),
        (LONG, 1, {"gradual": LONG}),
    ],
)
def test_with_few_steps_a_cut_is_trained_and_with_many_weights_that_too_unless_steps_are_very_many(
    toy: Any, monkeypatch: pytest.MonkeyPatch, gradients: int, large: int, trained: dict[str, int]
) -> None:
    monkeypatch.setattr(module, "LARGE", large)
    assert shares(toy, gradients) == trained


def test_many_samples_are_worth_pruning_step_by_step_sooner(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "ENOUGH", 1)
    assert shares(toy, 64 * module.FEW_STEPS) == {"gradual": 64 * module.FEW_STEPS}
    assert shares(toy, 64 * module.FEW_STEPS - 1) == {CUT: 64 * module.FEW_STEPS - 1}


def mixed() -> nn.Module:
    first = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 8, 3), nn.ReLU()]
    return nn.Sequential(*first, nn.Conv2d(8, 1, 3, padding=2), nn.Conv2d(1, 1, 3))


def test_where_much_is_no_linear_map_a_cut_layer_by_layer_is_not_relied_on() -> None:
    """Layer by layer only the mean sparsity is known of the others."""
    images = seeded(lambda: torch.rand(200, 1, 6, 6), 1)
    result = Surgery(seeded(mixed, 0), (images, images), "mse", progress=False).prune(0.5, "auto", max_gradients=2000)
    kept = next(note for note in result.notes if "was kept" in note)
    assert all(f" {name} " in kept.partition("samples:")[2] for name in ("layerwise", "mp", "gradual"))
    assert "trained" not in kept


def test_a_large_language_model_is_only_trained_from_its_cut(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", 1)
    monkeypatch.setattr(module, "is_tokens", lambda _: True)
    assert shares(toy, 10**6) == {"layerwise, trained": 10**6}


def names(toy: Any, **settings: Any) -> list[str]:
    """The candidates without a limit of time."""
    return [candidate.name for candidate in module.candidates(begun(toy, **settings))]


def test_with_many_samples_and_steps_nothing_is_tried_beside_training(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut at once is tried where training might not be ahead: few samples or steps, many weights, no outputs."""
    sure = 64 * module.SURE
    assert names(toy, max_gradients=sure) == ["layerwise", "gradual"]  # the toy has few samples
    monkeypatch.setattr(run_module, "ENOUGH", 1)
    assert names(toy, max_gradients=sure) == ["gradual"]
    assert names(toy, max_gradients=sure - 1) == ["layerwise", "gradual"]
    assert names(toy, effort="quick")[0] == "layerwise"
    assert names((*toy[:2], lambda model, batch: model(batch[0]).square().mean()), max_gradients=sure)[0] == "layerwise"
    monkeypatch.setattr(module, "LARGE", 1)
    assert names(toy, max_gradients=sure) == ["layerwise", CUT, "gradual"]


def shares(toy: Any, gradients: int) -> dict[str, int]:
    """The gradients of each candidate that trains."""
    chosen = module.candidates(begun(toy, max_gradients=gradients))
    return {c.name: c.method.max_gradients for c in chosen if isinstance(c.method, Gradual)}


def begun(toy: Any, **settings: Any) -> AutoRun:
    """A run that has tried nothing yet."""
    surgery = Surgery(*toy, progress=False)
    task = Task(copy.deepcopy(surgery.original), [], 0, silent, Clock(surgery.device, silent))
    return AutoRun(Auto(**settings), surgery, task)


def test_what_candidates_take_is_told_by_the_time_of_a_pass(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, weights = begun(toy), sum(p.numel() for p in toy[0].parameters() if p.dim() > 1)
    monkeypatch.setattr(module, "seconds_a_sample", lambda *_: 0.001)
    monkeypatch.setattr(module, "_flops", lambda: 1e3)

    def told(*methods: Any) -> float:
        return module.seconds_of(run, [module.Candidate("one", method) for method in methods])

    assert told(Gradual("auto", max_gradients=10_000)) == pytest.approx(50.0)
    inputs = sum(p.numel() * p.shape[1] for p in toy[0].parameters() if p.dim() > 1)
    assert inputs > weights
    layers = told(Layerwise(max_samples=20))
    assert layers == pytest.approx(module.LAYER_PASSES * 20 * 0.001 + module.LAYER_WORK * inputs / 1e3)
    rows, kept = min(module.ROWS, run.samples.size), max(0.1, 1 - run.task.total / weights)
    search = (module.SEARCH_PASSES + 5 * rows) * 0.001 + 6 * kept * weights * rows**2 / 1e3
    assert told(Layerwise(max_samples=20), module.by_fisher(10, ())) == pytest.approx(layers + search)
    assert told(OneShot(module.Magnitude(), name="mp")) == 0.0


def test_the_plan_is_told_before_anything_is_tried(toy: Any) -> None:
    seen: list[Any] = []
    Surgery(*toy, progress=False, callback=seen.append).prune(0.8, "auto", max_gradients=1000)
    plan = next(number for number, event in enumerate(seen) if event.stage == "plan")
    assert 0 < seen[plan].values["about seconds"] < 600
    assert "layerwise" in seen[plan].values["candidates"]
    assert all(event.stage not in ("layers", "training", "candidates") for event in seen[:plan])


def test_a_limit_that_does_not_bind_changes_nothing(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many samples training alone is tried: no cut at once is compared with it on samples the dense one knows."""
    monkeypatch.setattr(run_module, "ENOUGH", 1)
    monkeypatch.setattr("brainsurgeon.pruning.gradual.run.ENOUGH", 1)
    settings: dict[str, Any] = {"max_gradients": 64 * module.SURE}
    free, bound = (
        Surgery(*toy, progress=False).prune(0.8, "auto", **settings, **limit) for limit in ({}, {"max_seconds": 300.0})
    )
    assert free.notes[0].startswith("gradual was kept")
    assert bound.notes == free.notes
    assert bound.settings["sample_gradients"] == free.settings["sample_gradients"]
    assert all(torch.equal(mask, bound.masks[name]) for name, mask in free.masks.items())


def test_within_a_limit_the_plan_is_what_fits(toy: Any) -> None:
    seen: list[Any] = []
    limits = {"max_gradients": 1000, "max_seconds": 20.0}
    Surgery(*toy, progress=False, callback=seen.append).prune(0.8, "auto", **limits)
    plan = next(number for number, event in enumerate(seen) if event.stage == "plan")
    assert 10 < seen[plan].values["about seconds"] <= 20
    assert seen[plan].values["candidates"] == "the cheap first, as many as fit"
    assert all(event.stage not in ("layers", "training", "candidates") for event in seen[:plan])

"""Goals: the network that is found, against a grid, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trained import accuracy, rings, trained

import brainsurgeon
from brainsurgeon import Goal
from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import clock
from brainsurgeon.pruning.bracket import Bracket

VALIDATION = rings(7, 400)


def found(goal: Goal, method: Any = "mp", **settings: Any) -> brainsurgeon.PruningResult:
    return brainsurgeon.prune(trained(), rings(0), method=method, goal=goal, progress=False, **settings)


def at(sparsity: float) -> float:
    """The accuracy of magnitude pruning on the validation samples, by hand."""
    model = trained()
    weights = [model[0].weight, model[2].weight]
    size = sorted(float(w) for weight in weights for w in weight.detach().abs().flatten())
    limit = size[-(-round(sparsity * 10_000) * 352 // 10_000) - 1]
    with torch.no_grad():
        for weight in weights:
            weight[weight.abs() <= limit] = 0
    return accuracy(model, VALIDATION)


@pytest.mark.parametrize("drop", [0.02, 0.05, 0.15])
def test_the_sparsity_of_one_shot_methods_is_that_of_the_grid(drop: float) -> None:
    """Every sparsity that the search may try is tried by hand: the answer keeps the metric, and the next does not."""
    result = found(Goal(drop=drop, metric="accuracy", validation=VALIDATION))
    record = result.settings["goal"]
    dense = accuracy(trained(), VALIDATION)
    assert record["dense"] == pytest.approx(dense)
    for one in record["tries"]:
        assert one["value"] == pytest.approx(at(one["sparsity"])), one
    least = dense - 100 * drop - 1e-9
    bracket = Bracket(0.99, 0.1)
    while (sparsity := bracket.next()) is not None:
        bracket = bracket.after(sparsity, at(sparsity) >= least)
    assert (result.sparsity, record["missed_at"]) == (bracket.low, bracket.high)
    assert accuracy(result.model, VALIDATION) >= least
    assert (1 - result.sparsity) / (1 - record["missed_at"]) <= 1.1


def test_a_trained_goal_comes_near_a_grid_of_whole_runs() -> None:
    """Whole runs at each of a grid of sparsities, judged alike: the path comes near the best of them."""
    drop, dense = 0.02, accuracy(trained(), VALIDATION)
    grid = [0.85, 0.9]
    runs = {s: brainsurgeon.prune(trained(), rings(0), s, "gradual", max_gradients=40_000) for s in grid}
    kept = [s for s in grid if accuracy(runs[s].model, VALIDATION) >= dense - 100 * drop]
    result = found(Goal(drop=drop, validation=VALIDATION), "gradual", max_gradients=40_000)
    assert result.settings["sample_gradients"] <= 40_000
    assert accuracy(result.model, VALIDATION) >= dense - 100 * drop
    truth = max(kept)
    assert result.sparsity >= truth - 0.05, (result.sparsity, truth)


@pytest.mark.parametrize("method", ["auto", "gradual"])
def test_the_network_of_a_goal_has_the_pattern(method: str) -> None:
    goal = Goal(drop=0.3, most=0.5)
    result = found(goal, method, pattern="row", max_gradients=1000, include="0.*")
    assert set(result.masks["0.weight"].sum(1).tolist()) == {4}


def test_what_is_said_of_the_answer() -> None:
    result = found(Goal(drop="5%"))
    record = result.settings["goal"]
    assert (record["max_drop"], record["metric"], record["held_out_samples"]) == (0.05, "accuracy", 300)
    assert record["met"]
    assert record["interval"][0] < record["drop"] < record["interval"][1]
    notes = "\n".join(result.notes)
    assert "300 held-out training samples" in notes
    assert "95% interval" in notes
    assert f"{result.sparsity:g} is the highest sparsity that kept it" in notes
    assert "the same samples chose among" in notes
    assert result.pruned == -(-round(result.sparsity * 10_000) * 352 // 10_000)
    assert result.method == "mp"


def test_a_lax_goal_is_met_at_the_highest_sparsity() -> None:
    result = found(Goal(drop=0.99, most=0.8))
    assert result.sparsity == 0.8
    assert any("the highest sparsity that was tried" in note for note in result.notes)


def test_goals_that_cannot_be_met() -> None:
    with pytest.raises(BrainsurgeonError, match="even the dense network misses the goal"):
        found(Goal(metric="accuracy", threshold=99.99, validation=VALIDATION))
    with pytest.raises(BrainsurgeonError, match="was missed already at a sparsity of"):
        found(Goal(metric=lambda model: -float((model[0].weight == 0).sum()), threshold=-0.5))


def test_a_network_that_was_found_is_kept_where_gradients_do_not_reach_for_more() -> None:
    """The stages of a later leg take more examinations than there are gradients left."""
    settings = {"method": "staged", "max_gradients": 600, "schedule": 8}
    result = found(Goal(metric="accuracy", drop=0.1, validation=VALIDATION), **settings)
    assert any("the sample gradients were spent after" in note for note in result.notes)
    assert accuracy(result.model, VALIDATION) >= result.settings["goal"]["dense"] - 10


def test_a_metric_of_which_less_is_better() -> None:
    result = found(Goal(metric="perplexity", drop=0.1))
    record = result.settings["goal"]
    assert record["dense"] < record["value"] <= 1.1 * record["dense"]
    assert next(t for t in record["tries"] if t["sparsity"] == record["missed_at"])["value"] > 1.1 * record["dense"]


def test_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    result = found(Goal(target_bytes=1200))
    record = result.settings["goal"]
    result.save(tmp_path / "small", compressed=True)
    (file,) = (tmp_path / "small").glob("model*.safetensors")
    assert record["dense_takes"] > 1200 >= record["taken"] == file.stat().st_size
    assert record["taken"] >= 1080  # a tenth less at most
    assert record["metric"] == "accuracy"
    with pytest.raises(BrainsurgeonError, match="the dense network fits already"):
        found(Goal(target_bytes="1MB"))
    with pytest.raises(BrainsurgeonError, match=r"takes .* bytes, and 100 are asked for"):
        found(Goal(target_bytes=100))


@pytest.mark.parametrize("budget", ["uniform", "global"])
def test_multiply_adds_are_those_that_are_counted(budget: str) -> None:
    result = found(Goal(target_macs="40%"), "wf", budget=budget, num_gradients=40)
    record = result.settings["goal"]
    total, left = count_multiply_adds(result.model, rings(0)[0][:1], result.masks)
    assert (total, left) == (352, record["taken"])
    assert 0.9 * 140 <= left <= 140
    if budget == "uniform":
        assert (result.sparsity, len(record["tries"])) == (0.5995, 1)


def test_a_size_and_a_metric_together() -> None:
    result = found(Goal(target_bytes=1100, metric="accuracy", drop=0.001))
    assert not result.settings["goal"]["met"]
    assert any("accuracy is not kept" in note for note in result.notes)


def test_without_data_a_size_is_all_that_can_be_asked() -> None:
    result = brainsurgeon.prune(trained(), None, method="mp", goal=Goal(target_bytes=1200))
    assert "metric" not in result.settings["goal"]
    with pytest.raises(BrainsurgeonError, match="no samples to measure"):
        brainsurgeon.prune(trained(), None, method="mp", goal=Goal(drop=0.1))
    with pytest.raises(BrainsurgeonError, match="give data"):
        brainsurgeon.prune(trained(), None, method="mp", goal=Goal(target_macs=0.5))


def test_a_sparsity_or_a_goal() -> None:
    with pytest.raises(BrainsurgeonError, match="not both"):
        brainsurgeon.prune(trained(), rings(0), 0.5, goal=Goal(drop=0.1))
    with pytest.raises(BrainsurgeonError, match="not both"):
        brainsurgeon.prune(trained(), rings(0), goal="accuracy")  # type: ignore[arg-type]
    with pytest.raises(BrainsurgeonError, match="sparsity"):
        brainsurgeon.prune(trained(), rings(0))


@pytest.mark.parametrize(
    ("asked", "open_at"),
    [({"drop": 0.9, "resolution": 0.01}, "above 0.9"), ({"target_bytes": 1200, "resolution": 0.001}, "between 0 and")],
)
def test_no_network_is_tried_once_the_time_is_up_and_one_reaches_the_goal(asked: dict[str, Any], open_at: str) -> None:
    goal = Goal(metric="accuracy", **asked)
    assert len(found(goal).settings["goal"]["tries"]) > 1
    result = found(goal, "gradual", max_seconds=1e-6)
    tries = result.settings["goal"]["tries"]
    assert result.sparsity == tries[-1]["sparsity"]
    assert result.settings["goal"]["met"]
    assert len(tries) == 1
    assert f"time was up after 1 tries: nothing more was tried {open_at}" in "\n".join(result.notes)


def test_a_search_that_ends_in_time_says_nothing_of_time() -> None:
    for goal in (Goal(drop=0.05), Goal(target_bytes=1200)):
        assert "time was up" not in "\n".join(found(goal).notes)


def test_in_place_callback_and_seed() -> None:
    model, events = trained(), list[brainsurgeon.Event]()
    goal = Goal(drop=0.05)
    result = brainsurgeon.prune(model, rings(0), method="mp", goal=goal, in_place=True, callback=events.append)
    assert result.model is model
    assert sum(int((model.get_parameter(name) == 0).sum()) for name in result.masks) >= result.pruned
    legs = [event for event in events if event.stage == "legs"]
    assert [event.values["sparsity"] for event in legs] == [t["sparsity"] for t in result.settings["goal"]["tries"]]
    again = found(goal)
    assert again.sparsity == result.sparsity
    for name, value in again.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


def test_a_record_survives_a_folder(tmp_path: Any) -> None:
    result = found(Goal(drop=0.05))
    result.save(tmp_path / "found")
    loaded = brainsurgeon.PruningResult.load(tmp_path / "found", trained())
    assert loaded.settings["goal"]["tries"] == result.settings["goal"]["tries"]


def test_buffers_and_modes_are_those_of_the_network_that_is_found() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).train()
    result = brainsurgeon.prune(model, rings(0), method="gradual", max_gradients=2000, goal=Goal(drop=0.5, most=0.5))
    assert result.model.training
    assert not torch.equal(result.model[1].running_mean, model[1].running_mean)


def test_a_bad_sample_of_the_validation_set_is_named() -> None:
    inputs, targets = rings(1)
    inputs = inputs.clone()
    inputs[7, 0] = torch.nan
    with pytest.raises(BrainsurgeonError, match="index 7 of the data"):
        brainsurgeon.prune(trained(), rings(0), method="mp", goal=Goal(drop=0.2, validation=(inputs, targets)))


def test_samples_that_the_model_does_not_take_are_told_in_words() -> None:
    inputs, targets = rings(0)
    goal = Goal(target_macs=0.5)
    with pytest.raises(BrainsurgeonError, match="failed on the first sample"):
        brainsurgeon.prune(trained(), (inputs[:, :1], targets), method="mp", goal=goal)


def test_a_metric_that_fails_is_told() -> None:
    goal = Goal(drop=0.2, metric=lambda output, target: 1 / 0)
    with pytest.raises(BrainsurgeonError, match=r"failed \(ZeroDivisionError"):
        brainsurgeon.prune(trained(), rings(0), method="mp", goal=goal)


def test_the_search_for_a_size_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "PULSE", 0.0)
    told: list[str] = []
    goal = Goal(target_macs=0.5)
    brainsurgeon.prune(
        trained(), rings(0), method="mp", goal=goal, callback=lambda event: told.append(event.stage), progress=False
    )
    assert told.index("legs") > 5
    assert set(told[:5]) == {"working"}


def test_a_drop_of_what_is_nothing_is_refused_and_a_threshold_taken() -> None:
    x, _ = rings(1)
    with pytest.raises(BrainsurgeonError, match="that is 0: give a threshold"):
        brainsurgeon.prune(trained(), x, method="layerwise", loss="match", goal=Goal(drop=0.05), progress=False)
    goal = Goal(threshold=0.5)
    result = brainsurgeon.prune(trained(), x, method="layerwise", loss="match", goal=goal, progress=False)
    assert result.settings["goal"]["met"]
    assert not any("inf" in note for note in result.notes)
    assert "inf" not in brainsurgeon.sweep(trained(), x, [0.5], "layerwise", "match", progress=False).table()


def test_multiply_adds_are_the_networks_own_where_it_is_compared_with_the_dense_one() -> None:
    x, y = rings(1)
    goal = Goal(target_macs=0.75)
    compared = brainsurgeon.prune(trained(), x, method="mp", loss="match", goal=goal, progress=False)
    plain = brainsurgeon.prune(trained(), (x, y), method="mp", goal=goal, progress=False)
    assert compared.sparsity == plain.sparsity
    assert compared.settings["goal"]["dense_takes"] == plain.settings["goal"]["dense_takes"]

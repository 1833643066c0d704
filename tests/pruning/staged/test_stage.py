"""One stage: the best of many ends on held-out samples, with every gradient taken on other ones, and counted."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch
from cases import CASES, seeded
from staging import Notebook, run, trained
from torch import Tensor, nn

from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.update import Independent
from brainsurgeon.network import gradients, sample_loss
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.staged import descent
from brainsurgeon.pruning.staged import stage as stage_module
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.staged.schedule import Stages
from brainsurgeon.pruning.staged.stage import Stage
from brainsurgeon.samples.held_out import TrainingSamples


@pytest.fixture(scope="module")
def toy() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return trained()


@pytest.mark.parametrize("method", ["staged", "mp+cbs-u", "wf"])
def test_what_is_gone_stays_gone(toy: Any, method: str) -> None:
    notebook = Notebook()
    run(toy, method=method, store=notebook)
    for before, after in pairwise(notebook.states):
        assert not (before.pruned & ~after.pruned).any()


@pytest.mark.parametrize("flops", [0, sample_loss.ROUND_FLOPS], ids=["judged in rounds", "judged at once"])
@pytest.mark.parametrize("curvature", ["auto", "fisher", "gram"])
def test_the_held_out_loss_never_rises_in_a_refit(
    toy: Any, curvature: str, flops: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_loss, "BATCH", 4)
    monkeypatch.setattr(sample_loss, "ROUND_FLOPS", flops)
    notebook = Notebook()
    run(toy, schedule=Stages(2, refits=8, trainings=0), curvature=curvature, store=notebook)
    losses = [state.loss for state in notebook.states[1:]]
    assert all(after <= before for before, after in pairwise(losses))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("method", ["cbs", "staged"])
def test_no_gradient_is_taken_on_what_is_held_out(toy: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search asks for gradients of its own: they are of the stage's samples too."""
    seen: list[Tensor] = []
    own = sample_loss.batch_gradient

    def noting(loss: Any, weights: Any, values: Tensor, batch: Any) -> Tensor:
        seen.append(batch[0])
        return own(loss, weights, values, batch)

    monkeypatch.setattr(sample_loss, "batch_gradient", noting)
    run(toy, method=method, schedule=Stages(2, refits=0, trainings=0))
    held = TrainingSamples(toy[1], 0, torch.device("cpu")).held_out()[0][0]
    assert seen
    assert not (torch.cat(seen).unsqueeze(1) == held.unsqueeze(0)).all(2).any()


def test_a_refit_that_helps_nothing_leaves_the_weights_and_tries_shorter_steps(toy: Any) -> None:
    """Where the loss is the same everywhere, whatever its gradient says, no step is better than staying."""
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 3)), 0)

    def flat(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        output = model(batch[0]).mean()
        return output - output.detach() + 1

    notebook = Notebook()
    run((model, toy[1]), loss=flat, schedule=Stages(1, refits=2, trainings=0), curvature="gram", store=notebook)
    first, second, _ = notebook.states
    assert torch.equal(first.values, second.values)
    assert second.choice.slope == ""
    assert bool(first.last_step.any())
    assert not second.last_step.any()  # nothing moved, so there is no momentum
    assert second.choice.length["gram/loss"] < first.choice.length["gram/loss"]


def test_a_stage_that_changes_something_is_not_idle(toy: Any) -> None:
    notebook = Notebook()
    run(toy, schedule=Stages(4, refits=6, trainings=0), store=notebook)
    for before, after in pairwise(notebook.states):
        assert after.idle == (before.idle + 1 if torch.equal(before.values, after.values) else 0)
    assert notebook.states[3].idle == 0


def test_the_trace_tells_every_stage(toy: Any) -> None:
    result = run(toy)
    stages = [event for event in result.trace if event.stage == "stages"]
    assert [(event.done, event.total) for event in stages] == [(k, 7) for k in range(1, 8)]
    assert stages[-1].values["pruned"] == 87
    assert all(event.values["loss"] >= 0 for event in stages)
    assert {event.values["curvature"] for event in stages} <= {"fisher", "gram"}  # type: ignore[comparison-overlap]


def test_the_loss_is_examined_where_the_weights_have_come_to(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original, places, notebook = stage_module.examine, [], Notebook()

    def watched(kind: str, loss: Any, weights: Any, *rest: Any) -> Any:
        places.append(weights.flatten(loss.model))
        return original(kind, loss, weights, *rest)

    monkeypatch.setattr(stage_module, "examine", watched)
    run(toy, curvature="gram", store=notebook)
    starts = [find_weights(toy[0]).flatten(toy[0]), *(state.values for state in notebook.states[:-1])]
    assert all(torch.equal(place, start) for place, start in zip(places, starts, strict=True))
    assert not torch.equal(places[0], places[1])


@pytest.mark.parametrize(("method", "asked"), [("wf", True), ("staged", False), ("mp", False)])
def test_the_update_is_the_methods_own(toy: Any, method: str, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = Independent.__call__, []
    monkeypatch.setattr(Independent, "__call__", lambda *args: calls.append(args) or original(*args))
    run(toy, method=method)
    assert bool(calls) == asked


@pytest.mark.parametrize(("name", "slopes"), [("linear", {"distillation"}), ("dict_batch", set())])
def test_steps_towards_the_dense_outputs_are_tried_where_the_loss_sees_outputs(
    name: str, slopes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, found = Stage._other_slopes, []

    def watched(self: Any, *args: Any) -> Any:
        slopes, taken = original(self, *args)
        found.append(slopes)
        return slopes, taken

    monkeypatch.setattr(Stage, "_other_slopes", watched)
    case = CASES[name]
    run((case.model(), case.data()), loss=case.loss)
    assert found[0].keys() == found[5].keys() == slopes  # in contests
    assert all(other.keys() <= slopes for other in found)
    found = [other for other in found if other]
    if slopes:  # at the dense weights the distance is least, and further on it is not
        assert float(found[0]["distillation"].abs().max()) < 1e-6
        assert float(found[-1]["distillation"].abs().max()) > 1e-4


@dataclass(frozen=True)
class Drawing:
    """Notes a random number of each stage's generator, and prunes the smallest weights."""

    drawn: list[float]
    uses_curvature: ClassVar[bool] = False
    uses_loss: ClassVar[bool] = False

    def __call__(self, problem: Problem) -> Tensor:
        self.drawn.append(float(torch.rand(1, generator=problem.generator)))
        return problem.budget.lowest(problem.weights.abs())


def test_searches_in_stages_follow_the_seed_and_the_number_of_the_stage(toy: Any) -> None:
    drawn: dict[int, list[float]] = {seed: [] for seed in (0, 50)}
    for seed in (0, 50):
        run(toy, method=Staged(Drawing(drawn[seed])), seed=seed, schedule=Stages(3, refits=0, trainings=0))
    again: list[float] = []
    run(toy, method=Staged(Drawing(again)), seed=0, schedule=Stages(3, refits=0, trainings=0))
    assert drawn[0] == again
    assert len(set(drawn[0])) == 3  # one for each stage: the dampings and curvatures of one share it
    assert not set(drawn[0]) & set(drawn[50])


@pytest.mark.parametrize("most_rows", [16, 1000])
@pytest.mark.parametrize("curvature", ["auto", "fisher", "gram"])
def test_the_gradients_that_are_told_are_the_samples_they_were_taken_on(
    toy: Any, curvature: str, most_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of all curvatures, slopes and trainings; a row of few is the mean over several samples."""
    taken: list[int] = []

    def rows(loss: Any, weights: Any, batches: Any, most: int, group: int, *rest: Any) -> Any:
        for chunk in own_rows(loss, weights, batches, most, group, *rest):
            taken.append(group * next(iter(chunk.values())).shape[0])
            yield chunk

    def one(loss: Any, weights: Any, values: Tensor, batch: Any) -> Tensor:
        taken.append(len(batch[0]))
        return own_gradient(loss, weights, values, batch)

    own_rows, own_gradient = gradients.gradient_rows, sample_loss.batch_gradient
    monkeypatch.setattr(gradients, "gradient_rows", rows)
    for module in (sample_loss, descent):
        monkeypatch.setattr(module, "batch_gradient", one)
    monkeypatch.setattr(stage_module, "MOST_ROWS", most_rows)
    monkeypatch.setattr(stage_module, "FEWEST_ROWS", 1)
    schedule = Stages(2, refits=4, trainings=2)
    result = run(toy, curvature=curvature, schedule=schedule, max_gradients=30_000)
    assert result.settings["sample_gradients"] == sum(taken)
    assert result.settings["sample_gradients"] > result.settings["training_gradients"] > 0


@pytest.mark.parametrize("curvature", ["auto", "gram", "fisher"])
def test_layers_are_examined_and_reconstructed_on_training_samples_alone(
    toy: Any, curvature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[Tensor]] = {"examine": [], "reconstruct": []}

    def watched(name: str, place: int) -> None:
        original = getattr(stage_module, name)

        def noting(*arguments: Any) -> Any:
            seen[name].extend(batch[0] for batch in arguments[place])
            return original(*arguments)

        monkeypatch.setattr(stage_module, name, noting)

    watched("examine", 3)
    watched("reconstruct", 3)
    run(toy, curvature=curvature)
    held = TrainingSamples(toy[1], 0, torch.device("cpu")).held_out()[0][0]
    assert seen["examine"]
    assert bool(seen["reconstruct"]) == (curvature == "gram") or curvature == "auto"
    for batches in seen.values():
        for x in batches:
            assert not (x.unsqueeze(1) == held.unsqueeze(0)).all(2).any()

"""Stage by stage: exact counts, the same weights from the same seed, and from wherever a run was broken off."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from cases import CASES, seeded
from staging import Notebook, StoppedError, run, same, trained
from torch import Tensor, nn

from brainsurgeon.engine.budget import make_budget
from brainsurgeon.engine.update import Independent
from brainsurgeon.network import sample_loss
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.staged import pacing
from brainsurgeon.pruning.staged import run as staged
from brainsurgeon.pruning.staged.schedule import KINDS, Stages
from brainsurgeon.pruning.staged.state import LEAST_DAMPING, LEAST_LENGTH, MOST_DAMPING, MOST_LENGTH, Stand
from brainsurgeon.samples.held_out import TrainingSamples

BUDGETS: list[str | dict[str, float]] = ["global", "uniform", {"2.weight": 0.4}]


@pytest.fixture(scope="module")
def toy() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return trained()


@pytest.mark.parametrize(
    ("budget", "method", "kind"),
    [
        *((budget, "auto", kind) for budget in BUDGETS for kind in KINDS),
        *((BUDGETS[-1], method, "exponential") for method in ("mp", "wf", "rmp+cbs-u")),
    ],
    ids=str,
)
def test_counts_are_exact_after_every_stage(toy: Any, budget: Any, method: str, kind: str) -> None:
    schedule, notebook = Stages(4, kind, refits=2, walks=0), Notebook()
    result = run(toy, budget=budget, method=method, schedule=schedule, keeper=notebook)
    layers = [(layer.name, layer.offset, layer.size) for layer in find_weights(toy[0]).layers]
    final = make_budget(budget, 0.8, layers, torch.device("cpu"))
    assert [stand.number for stand in notebook.stands] == [1, 2, 3, 4, 5, 6]
    assert [stand.progress for stand in notebook.stands] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    for stand in notebook.stands:
        schedule.budget_at(stand.progress, final).check(stand.pruned)
        assert not stand.values[stand.pruned].any()
        assert not stand.drift[stand.pruned].any()
    assert result.pruned == final.total == 87  # ⌈0.8 · 108⌉
    assert sum(int(mask.sum()) for mask in result.masks.values()) == 87


@pytest.mark.parametrize("method", ["auto", "mp+cbs-u"])
def test_what_is_gone_comes_back_in_looks_alone(toy: Any, method: str) -> None:
    notebook = Notebook()
    result = run(toy, method=method, keeper=notebook)
    told = [event.values for event in result.trace if event.stage == "stages"]
    for number, (before, after) in enumerate(pairwise(notebook.stands), 2):
        returned = int((before.pruned & ~after.pruned).sum())
        assert returned == told[number - 1]["returned"]
        assert not returned or (number - 1) % pacing.LOOK == 0


def test_the_same_seed_gives_the_same_bits_and_another_seed_other_weights(toy: Any) -> None:
    one, other, third = run(toy, seed=5), run(toy, seed=5), run(toy, seed=6)
    assert same(one, other)
    assert [event.values for event in one.trace] == [event.values for event in other.trace]
    assert not same(one, third)


def test_the_global_generator_has_no_say(toy: Any) -> None:
    one = run(toy)
    torch.manual_seed(77)
    state = torch.get_rng_state()
    assert same(one, run(toy))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("stop", range(1, 8))
def test_a_run_that_was_broken_off_goes_on_to_the_same_bits(toy: Any, stop: int) -> None:
    whole, first = Notebook(), Notebook(stop=stop)
    expected = run(toy, keeper=whole)
    with pytest.raises(StoppedError):
        run(toy, keeper=first)
    rest = Notebook(start=first.stands[-1])
    assert same(run(toy, keeper=rest), expected)
    assert [stand.number for stand in rest.stands] == list(range(stop + 1, 8))
    for one, other in zip([*first.stands, *rest.stands], whole.stands, strict=True):
        assert torch.equal(one.values, other.values)
        assert (one.damping, one.length, one.loss) == (other.damping, other.length, other.loss)


@pytest.mark.parametrize("flops", [0, sample_loss.ROUND_FLOPS], ids=["judged in rounds", "judged at once"])
@pytest.mark.parametrize("curvature", ["auto", "fisher", "gram"])
def test_the_held_out_loss_never_rises_in_a_refit(
    toy: Any, curvature: str, flops: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_loss, "BATCH", 4)
    monkeypatch.setattr(sample_loss, "ROUND_FLOPS", flops)
    notebook = Notebook()
    run(toy, schedule=Stages(2, refits=8, walks=0), curvature=curvature, keeper=notebook)
    losses = [stand.loss for stand in notebook.stands[1:]]
    assert all(after <= before for before, after in pairwise(losses))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("method", ["cbs", "auto"])
def test_no_gradient_is_taken_on_what_is_held_out(toy: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search asks for gradients of its own: they are of the stage's samples too."""
    seen: list[Tensor] = []
    own = sample_loss.batch_gradient

    def noting(loss: Any, weights: Any, values: Tensor, batch: Any) -> Tensor:
        seen.append(batch[0])
        return own(loss, weights, values, batch)

    monkeypatch.setattr(sample_loss, "batch_gradient", noting)
    run(toy, method=method, schedule=Stages(2, refits=0, walks=0))
    held = TrainingSamples(toy[1], 0, torch.device("cpu")).held_out()[0][0]
    assert seen
    assert not (torch.cat(seen).unsqueeze(1) == held.unsqueeze(0)).all(2).any()


def test_a_refit_that_helps_nothing_leaves_the_weights_and_tries_shorter_steps(toy: Any) -> None:
    """With all gradients at zero no step is better than staying."""
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 3)), 0)

    def flat(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return (0 * model(batch[0])).sum() + 1

    notebook = Notebook()
    run((model, toy[1]), loss=flat, schedule=Stages(1, refits=2, walks=0), curvature="gram", keeper=notebook)
    first, second, _ = notebook.stands
    assert torch.equal(first.values, second.values)
    assert second.slope == ""
    assert bool(first.drift.any())
    assert not second.drift.any()  # nothing moved, so there is no momentum
    assert second.length["gram/loss"] < first.length["gram/loss"]


class FakeTime:
    """A clock on which every stage takes so many seconds: it is read at the start, then before each stage."""

    def __init__(self, seconds: float):
        self.reads, self.seconds = 0, seconds

    def monotonic(self) -> float:
        self.reads += 1
        return self.seconds * max(0, self.reads - 2)


@pytest.mark.parametrize(
    ("limit", "progress"),
    [
        (float("inf"), [0.25, 0.5, 0.75, 1, 1, 1, 1]),
        (1e9, [0.25, 0.5, 0.75, 1, 1, 1, 1]),
        (5.5, [0.25, 0.5, 0.75, 1, 1]),
        (4.5, [0.25, 0.5, 0.75, 1]),
        (3.5, [0.25, 0.625, 1]),
        (2.5, [0.25, 1]),
        (1e-9, [0.25, 1]),
    ],
)
def test_a_run_that_is_short_of_time_takes_larger_steps_and_fewer(
    toy: Any, limit: float, progress: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stage takes a second on this clock; the first is always taken as planned, to know what one takes."""
    monkeypatch.setattr(staged, "time", FakeTime(1.0))
    notebook = Notebook()
    result = run(toy, max_seconds=limit, keeper=notebook)
    assert [stand.progress for stand in notebook.stands] == pytest.approx(progress)
    assert result.pruned == 87
    note = f"time was up: {len(progress)} of 7 stages and refits were done"
    assert (note in result.notes) == (len(progress) < 7)


def test_a_clock_that_stands_still_is_no_trouble(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some clocks tick slower than a small network's stage."""
    monkeypatch.setattr(staged, "time", FakeTime(0.0))
    assert run(toy, max_seconds=1.0).notes == ()


def test_a_real_clock_stops_a_run(toy: Any) -> None:
    result = run(toy, max_seconds=1e-6, schedule=Stages(50, refits=50, walks=0))
    assert result.pruned == 87
    assert "time was up: 2 of 100 stages and refits were done" in result.notes


@pytest.mark.parametrize("most", [16, 100, 1000, 100_000])
def test_no_more_gradients_are_taken_than_allowed(toy: Any, most: int) -> None:
    """Seven stages with two slopes each, and the other curvature in two of them: sixteen looks at most."""
    taken = run(toy, max_gradients=most).settings["sample_gradients"]
    assert min(most, 9 * 240) * 0.9 <= taken <= min(most, 16 * 240)


def test_refits_that_lead_nowhere_are_left_out(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third that stays is the last; walks come all the same."""

    def stay(run: staged.StagedRun, stand: Stand, final: Any) -> Stand:
        return stage(run, stand, final) if stand.number < 6 else replace(stand, idle=stand.idle + 1)

    stage = staged.StagedRun._stage
    monkeypatch.setattr(staged.StagedRun, "_stage", stay)
    notebook = Notebook()
    run(toy, schedule=Stages(4, refits=9, walks=1), keeper=notebook)
    assert [stand.number for stand in notebook.stands] == [1, 2, 3, 4, 5, 6, 7, 8, 14]


def test_a_stage_that_changes_something_is_not_idle(toy: Any) -> None:
    notebook = Notebook()
    run(toy, schedule=Stages(4, refits=6, walks=0), keeper=notebook)
    for before, after in pairwise(notebook.stands):
        assert after.idle == (before.idle + 1 if torch.equal(before.values, after.values) else 0)
    assert notebook.stands[3].idle == 0


@pytest.mark.parametrize("most", [5, 50, 1000])
def test_no_more_samples_are_used_than_allowed(toy: Any, most: int) -> None:
    model, (x, y) = toy
    seen: set[int] = set()

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        if not torch._C._functorch.is_batchedtensor(batch[2]):
            seen.update(batch[2].reshape(-1).tolist())
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    result = run((model, (x, y, torch.arange(300))), max_samples=most, loss=loss, method="wf-s+cbs-u")
    counts = result.settings["training_samples"], result.settings["held_out_samples"]
    assert counts == (min(most, 300) - min(most, 300) // 5, min(most, 300) // 5)
    assert len(seen) <= min(most, 300)


def test_what_a_stand_has_learnt_stays_within_bounds() -> None:
    zero = torch.zeros(1)
    stand = Stand(1, 0.5, zero, zero.bool(), zero, "gram")
    assert stand.damped(1e-9).damping == {"fisher": 1.0, "gram": LEAST_DAMPING}
    assert stand.damped(1e12).damping["gram"] == MOST_DAMPING
    assert stand.stretched("loss", 1e-9).reach("loss") == LEAST_LENGTH
    assert stand.stretched("loss", 1e9).reach("loss") == MOST_LENGTH
    assert stand.stretched("loss", 2.0).reach("match") == stand.reach("match")
    short = stand.stretched("loss", 2.0).shortened(["loss", "match"], 0.25)
    assert (short.reach("loss"), short.reach("match"), short.slope) == (pytest.approx(0.05), 0.025, "")


def test_the_trace_tells_every_stage(toy: Any) -> None:
    result = run(toy)
    stages = [event for event in result.trace if event.stage == "stages"]
    assert [(event.done, event.total) for event in stages] == [(k, 7) for k in range(1, 8)]
    assert stages[-1].values["pruned"] == 87
    assert all(event.values["loss"] >= 0 for event in stages)
    assert {event.values["curvature"] for event in stages} <= {"fisher", "gram"}  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("name", ["linear", "batch_norm_dropout"])
def test_the_loss_that_is_told_is_that_of_the_model_on_what_was_held_out(name: str) -> None:
    case = CASES[name]
    result = run((case.model(), case.data()))
    held = TrainingSamples(case.data(), 0, torch.device("cpu")).held_out()[0]
    for model, told in ((case.model(), result.loss_before), (result.model, result.loss_after)):
        found = nn.functional.cross_entropy(model.eval()(held[0]), held[1])
        assert told == pytest.approx(found.item(), rel=1e-5)


def test_the_loss_is_examined_where_the_weights_have_come_to(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original, places, notebook = staged.examine, [], Notebook()

    def watched(kind: str, loss: Any, weights: Any, *rest: Any) -> Any:
        places.append(weights.flatten(loss.model))
        return original(kind, loss, weights, *rest)

    monkeypatch.setattr(staged, "examine", watched)
    run(toy, curvature="gram", keeper=notebook)
    starts = [find_weights(toy[0]).flatten(toy[0]), *(stand.values for stand in notebook.stands[:-1])]
    assert all(torch.equal(place, start) for place, start in zip(places, starts, strict=True))
    assert not torch.equal(places[0], places[1])


@pytest.mark.parametrize(("method", "asked"), [("wf", True), ("auto", False), ("mp", False)])
def test_the_update_is_the_methods_own(toy: Any, method: str, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = Independent.__call__, []
    monkeypatch.setattr(Independent, "__call__", lambda *args: calls.append(args) or original(*args))
    run(toy, method=method)
    assert bool(calls) == asked


@pytest.mark.parametrize(("name", "slopes"), [("linear", {"match"}), ("dict_batch", set())])
def test_steps_towards_the_dense_outputs_are_tried_where_the_loss_sees_outputs(
    name: str, slopes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, found = staged.StagedRun._other_slopes, []

    def watched(self: Any, *args: Any) -> Any:
        found.append(original(self, *args))
        return found[-1]

    monkeypatch.setattr(staged.StagedRun, "_other_slopes", watched)
    case = CASES[name]
    run((case.model(), case.data()), loss=case.loss)
    assert found[0].keys() == found[5].keys() == slopes  # in looks
    assert all(other.keys() <= slopes for other in found)
    found = [other for other in found if other]
    if slopes:  # at the dense weights the distance is least, and further on it is not
        assert float(found[0]["match"].abs().max()) < 1e-6
        assert float(found[-1]["match"].abs().max()) > 1e-4

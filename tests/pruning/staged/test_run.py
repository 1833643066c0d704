"""Stage by stage: exact counts, the same weights from the same seed, and from wherever a run was broken off."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from staging import Notebook, StoppedError, run, same, trained
from torch import Tensor, nn

from brainsurgeon.engine.budget import make_budget
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.staged import run as staged
from brainsurgeon.pruning.staged.schedule import KINDS, Stages
from brainsurgeon.pruning.staged.stage import Stage
from brainsurgeon.pruning.staged.state import State

BUDGETS: list[str | dict[str, float]] = ["global", "uniform", {"2.weight": 0.4}]


@pytest.fixture(scope="module")
def toy() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return trained()


@pytest.mark.parametrize(
    ("budget", "method", "kind"),
    [
        *((budget, "staged", kind) for budget in BUDGETS for kind in KINDS),
        *((BUDGETS[-1], method, "exponential") for method in ("mp", "wf", "rmp+cbs-u")),
    ],
    ids=str,
)
def test_counts_are_exact_after_every_stage(toy: Any, budget: Any, method: str, kind: str) -> None:
    schedule, notebook = Stages(4, kind, refits=2, trainings=0), Notebook()
    result = run(toy, budget=budget, method=method, schedule=schedule, store=notebook)
    layers = [(layer.name, layer.offset, layer.size) for layer in find_weights(toy[0]).layers]
    final = make_budget(budget, 0.8, layers, torch.device("cpu"))
    assert [state.number for state in notebook.states] == [1, 2, 3, 4, 5, 6]
    assert [state.progress for state in notebook.states] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    for state in notebook.states:
        schedule.budget_at(state.progress, final).check(state.pruned)
        assert not state.values[state.pruned].any()
        assert not state.last_step[state.pruned].any()
    assert result.pruned == final.total == 87  # ⌈0.8 · 108⌉
    assert sum(int(mask.sum()) for mask in result.masks.values()) == 87


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
    expected = run(toy, store=whole)
    with pytest.raises(StoppedError):
        run(toy, store=first)
    rest = Notebook(start=first.states[-1])
    assert same(run(toy, store=rest), expected)
    assert [state.number for state in rest.states] == list(range(stop + 1, 8))
    for one, other in zip([*first.states, *rest.states], whole.states, strict=True):
        assert torch.equal(one.values, other.values)
        assert (one.choice, one.loss) == (other.choice, other.loss)


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
    result = run(toy, max_seconds=limit, store=notebook)
    assert [state.progress for state in notebook.states] == pytest.approx(progress)
    assert result.pruned == 87
    note = f"time was up: {len(progress)} of 7 stages and refits were done"
    assert (note in result.notes) == (len(progress) < 7)


def test_a_clock_that_stands_still_is_no_trouble(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some clocks tick slower than a small network's stage."""
    monkeypatch.setattr(staged, "time", FakeTime(0.0))
    assert run(toy, max_seconds=1.0).notes == ()


def test_a_real_clock_stops_a_run(toy: Any) -> None:
    result = run(toy, max_seconds=1e-6, schedule=Stages(50, refits=50, trainings=0))
    assert result.pruned == 87
    assert "time was up: 2 of 100 stages and refits were done" in result.notes


@pytest.mark.parametrize("most", [16, 100, 1000, 100_000])
def test_no_more_gradients_are_taken_than_allowed(toy: Any, most: int) -> None:
    """Seven stages with two slopes each, and the other curvature in two of them: sixteen examinations at most."""
    taken = run(toy, max_gradients=most).settings["sample_gradients"]
    assert min(most, 9 * 240) * 0.9 <= taken <= min(most, 16 * 240)


def test_refits_that_lead_nowhere_are_left_out(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third that stays is the last; trainings come all the same."""

    def stay(stage: Stage, state: State, final: Any) -> State:
        return whole(stage, state, final) if state.number < 6 else replace(state, idle=state.idle + 1)

    whole = Stage.__call__
    monkeypatch.setattr(Stage, "__call__", stay)
    notebook = Notebook()
    run(toy, schedule=Stages(4, refits=9, trainings=1), store=notebook)
    assert [state.number for state in notebook.states] == [1, 2, 3, 4, 5, 6, 7, 8, 14]

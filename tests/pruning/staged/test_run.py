"""Stage by stage: exact counts, the same weights from the same seed, and from wherever a run was broken off."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from staging import Notebook, StoppedError, run, same, trained
from torch import Tensor, nn

from brainsurgeon.engine.budget import make_budget
from brainsurgeon.events import clock as clock_module
from brainsurgeon.events.clock import TimeUp
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning import judging as judging_module
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


def stages_take(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let time stand still but in stages, of which each takes so many seconds."""
    now, whole = [100.0], Stage.__call__

    def stage(stage: Stage, state: State, final: Any) -> State:
        found = whole(stage, state, final)
        now[0] += seconds
        return found

    fake = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])
    monkeypatch.setattr(Stage, "__call__", stage)
    for module in (staged, clock_module, judging_module):
        monkeypatch.setattr(module, "time", fake)


@pytest.mark.parametrize(
    ("limit", "progress"),
    [
        (float("inf"), [0.25, 0.5, 0.75, 1, 1, 1, 1]),
        (1e9, [0.25, 0.5, 0.75, 1, 1, 1, 1]),
        (5.5, [0.25, 0.5, 0.75, 1, 1]),
        (4.5, [0.25, 0.5, 0.75, 1]),
        (3.5, [0.25, 0.625, 1]),
        (2.5, [0.25, 1]),
    ],
)
def test_a_run_that_is_short_of_time_takes_larger_steps_and_fewer(
    toy: Any, limit: float, progress: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stage takes a second on this clock; the first is always taken as planned, to know what one takes."""
    stages_take(1.0, monkeypatch)
    notebook = Notebook()
    result = run(toy, max_seconds=limit, store=notebook)
    assert [state.progress for state in notebook.states] == pytest.approx(progress)
    assert result.pruned == 87
    note = f"time was up: {len(progress)} of 7 stages and refits were done"
    assert (note in result.notes) == (len(progress) < 7)


def test_a_clock_that_stands_still_is_no_trouble(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some clocks tick slower than a small network's stage."""
    stages_take(0.0, monkeypatch)
    assert run(toy, max_seconds=1.0).notes == ()


def test_a_real_clock_stops_a_run(toy: Any) -> None:
    result = run(toy, max_seconds=0.4, schedule=Stages(500, refits=50, trainings=0))
    assert result.pruned == 87
    assert any(note.startswith("time was up") for note in result.notes)


def test_the_time_of_a_run_that_was_resumed_counts(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stages_take(1.0, monkeypatch)
    whole, rest = Notebook(stop=2), Notebook()
    with pytest.raises(StoppedError):
        run(toy, max_seconds=5.5, store=whole)
    rest.start, rest.spent = whole.states[-1], 2.0
    run(toy, max_seconds=5.5, store=rest)
    assert [state.number for state in rest.states] == [3, 4, 5]


@pytest.mark.parametrize("budget", ["global", "uniform"])
def test_time_that_is_up_within_a_stage_leaves_the_rest_to_magnitude(
    toy: Any, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Stage.__call__

    def dying(stage: Stage, state: State, final: Any) -> State:
        if state.number == 3:
            raise TimeUp
        return whole(stage, state, final)

    monkeypatch.setattr(Stage, "__call__", dying)
    notebook = Notebook()
    result = run(toy, max_seconds=100.0, budget=budget, store=notebook)
    assert result.pruned == 87
    reached = notebook.states[-1]
    missing = 87 - int(reached.pruned.sum())
    assert missing > 10
    assert result.notes[-2:] == (
        "time was up within stage 3 of 7",
        f"the last {missing} weights were removed by magnitude",
    )
    for name, layer in zip(result.masks, ((0, 72), (72, 108)), strict=True):
        before, values = reached.pruned[slice(*layer)], reached.values[slice(*layer)]
        mask, new = result.masks[name].reshape(-1), result.model.get_parameter(name).detach().reshape(-1)
        assert bool(mask[before].all())
        assert torch.equal(new[~mask], values[~mask])
    if budget == "global":
        gone = torch.cat([mask.reshape(-1) for mask in result.masks.values()]) & ~reached.pruned
        kept = torch.cat([~mask.reshape(-1) for mask in result.masks.values()])
        assert reached.values[gone].abs().max() <= reached.values[kept].abs().min()


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

"""Legs that go on from one another, share what the run may cost, and never see the samples they are judged on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import torch
from trained import accuracy, rings, trained

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import clock
from brainsurgeon.pruning.auto import candidates
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.gradual.loop import DivergedError
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.gradual.run import LOWER, GradualRun
from brainsurgeon.pruning.gradual.student import Student
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.methods import Method, make_method
from brainsurgeon.pruning.path import Path, shares_of
from brainsurgeon.pruning.path import trained as on_path
from brainsurgeon.pruning.patterns import as_pattern
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.staged.schedule import Stages
from brainsurgeon.pruning.surgery import Surgery

SPARSITIES = (0.5, 0.7, 0.8)


@dataclass
class Kept:
    """Keeps legs in memory; ends the run before leg number `kill`."""

    kill: int = 100
    legs: dict[int, PruningResult] = field(default_factory=dict)

    def load(self, number: int, sparsity: float) -> PruningResult | None:
        return self.legs.get(number)

    def save(self, number: int, result: PruningResult) -> None:
        self.legs[number] = result
        if number + 1 == self.kill:
            raise KeyboardInterrupt


@dataclass
class Read:
    """Data that is read anew each time, as a loader is."""

    batches: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.batches()


def walk(method: Method, **settings: Any) -> Path:
    surgery = Surgery(trained(), rings(0), progress=False)
    path = Path(surgery, method, anchor=0.8, **settings)
    leg = None
    for sparsity, share in zip(SPARSITIES, shares_of(SPARSITIES), strict=True):
        leg = path.go(sparsity, leg, share)
    return path


@pytest.fixture(scope="module")
def gradual() -> Path:
    return walk(Gradual(max_gradients=12_000))


def test_the_counts_of_every_leg_are_exact(gradual: Path) -> None:
    assert [leg.result.pruned for leg in gradual.legs] == [176, 247, 282]  # ⌈r · 352⌉
    for leg in gradual.legs:
        zeros = sum(int((leg.result.model.get_parameter(name) == 0).sum()) for name in leg.result.masks)
        assert zeros >= leg.result.pruned


def test_a_leg_of_gradual_keeps_what_is_gone(gradual: Path) -> None:
    for before, after in pairwise(gradual.legs):
        assert all(bool(after.result.masks[name][mask].all()) for name, mask in before.result.masks.items())


def test_all_legs_together_take_what_one_run_may(gradual: Path) -> None:
    assert 0 < gradual.searched < gradual.gradients <= 12_000
    assert gradual.gradients > 11_500
    assert len({leg.result.settings["learning_rate"] for leg in gradual.legs}) == 1


def test_the_metric_is_of_samples_that_no_leg_sees(gradual: Path) -> None:
    inputs, _ = rings(0)
    held = torch.cat([batch[0] for batch in gradual.held_out])
    seen = gradual._part.data[0]
    assert len(held) == gradual.samples == 300
    assert sorted(map(tuple, torch.cat([held, seen]).tolist())) == sorted(map(tuple, inputs.tolist()))
    last = gradual.legs[-1]
    assert last.scored is not None
    assert last.scored.value == pytest.approx(
        accuracy(last.result.model, (held, torch.cat([batch[1] for batch in gradual.held_out])))
    )
    said = gradual.judgement(last)
    assert said["held_out_samples"] == 300
    assert said["drop"] == pytest.approx((said["dense"] - said["value"]) / 100)
    assert said["interval"][0] < said["drop"] < said["interval"][1]


def test_the_dense_model_and_the_callers_are_left_alone(gradual: Path) -> None:
    for name, value in trained().state_dict().items():
        assert torch.equal(gradual.surgery.original.state_dict()[name], value)


def test_a_killed_path_goes_on_to_the_same_network(gradual: Path) -> None:
    kept = Kept(kill=3)
    with pytest.raises(KeyboardInterrupt):
        walk(Gradual(max_gradients=12_000), keep=kept)
    again = walk(Gradual(max_gradients=12_000), keep=Kept(legs=kept.legs))
    assert sorted(kept.legs) == [1, 2, 3]
    for name, value in gradual.legs[-1].result.model.state_dict().items():
        assert torch.equal(again.legs[-1].result.model.state_dict()[name], value)
    assert again.gradients == gradual.gradients


def test_a_one_shot_path_examines_once_and_prunes_the_dense_network() -> None:
    path = walk(make_method("wf", {"num_gradients": 50}))
    assert len(path._part._examined) == 1
    alone = path._part.prune(0.8, make_method("wf", {"num_gradients": 50}))
    for name, mask in alone.masks.items():
        assert torch.equal(path.legs[-1].result.masks[name], mask)


def test_a_staged_path_goes_on_from_the_leg_before() -> None:
    path = walk(Staged(name="staged", schedule=Stages(2, refits=1, trainings=1), max_gradients=3000))
    assert [leg.result.pruned for leg in path.legs] == [176, 247, 282]
    assert path.gradients <= 3000
    gone = torch.cat([mask.reshape(-1) for mask in path.legs[0].result.masks.values()])
    later = torch.cat([mask.reshape(-1) for mask in path.legs[-1].result.masks.values()])
    assert int((gone & later).sum()) == int(gone.sum())


def test_a_leg_without_time_goes_on_from_the_leg_before() -> None:
    path = Path(Surgery(trained(), rings(0), progress=False), Gradual(max_gradients=2000, max_seconds=60.0), anchor=0.5)
    first = path.go(0.5, None, 1.0)
    path._deadline = 0.0
    later = path.go(0.7, first, 1.0)
    for name, mask in first.result.masks.items():
        before, after = (leg.result.model.get_parameter(name) for leg in (first, later))
        assert torch.equal(after, before.masked_fill(later.result.masks[name], 0.0))
        assert bool(later.result.masks[name][mask].all())


def test_only_a_method_that_trains_is_told_of_the_leg_before(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Any] = []
    plain = Surgery.prune

    def prune(self: Surgery, *args: Any, **settings: Any) -> PruningResult:
        starts.append(settings["start"])
        return plain(self, *args, **settings)

    monkeypatch.setattr(Surgery, "prune", prune)
    walk(make_method("mp"))
    walk(Gradual(max_gradients=500))
    assert [start is None for start in starts] == [True, True, True, True, False, False]


def test_what_auto_goes_along_with() -> None:
    surgery, probe = Surgery(trained(), rings(0)), rings(0)
    found = on_path(Auto(max_gradients=5000, repair="weights", max_seconds=9.0), surgery, probe)
    assert found == Gradual("auto", max_gradients=5000, repair="weights", max_seconds=9.0)
    quick = Auto(effort="quick")
    assert on_path(quick, surgery, probe) is quick
    of_batches = Surgery(trained(), rings(0), lambda model, batch: model(batch[0]).square().mean())
    assert isinstance(on_path(Auto(), of_batches, probe), Staged)


@pytest.mark.parametrize(("gradients", "cut"), [(64 * candidates.LONG - 64, True), (64 * candidates.LONG, False)])
def test_a_large_network_begins_with_a_cut_unless_steps_are_very_many(
    gradients: int, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "LARGE", 1)
    found = on_path(Auto(max_gradients=gradients), Surgery(trained(), rings(0)), rings(0))
    assert isinstance(found, Gradual)
    assert (found.first_cut is not None) == cut


@pytest.mark.parametrize("loss", ["cross_entropy", lambda model, batch: model(batch[0]).square().mean()])
@pytest.mark.parametrize("pattern", ["2:4", "row", "4x4"])
def test_what_auto_goes_along_with_has_its_pattern(pattern: str, loss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "LARGE", 1)  # so that what begins with a cut is asked too
    asked = Auto(max_gradients=5000, pattern=as_pattern(pattern))
    found = on_path(asked, Surgery(trained(), rings(0), loss), rings(0))
    assert isinstance(found, Gradual | Staged)
    assert found.pattern == asked.pattern
    if isinstance(found, Gradual):
        assert found.first_cut is not None
        assert found.first_cut.pattern == asked.pattern


def test_the_shares_of_a_sweep_leave_nothing_over() -> None:
    left, taken = 1.0, []
    for share in shares_of([0.5, 0.75, 0.875]):
        taken.append(left * share)
        left -= taken[-1]
    assert taken == pytest.approx([1 / 3] * 3)
    assert left == pytest.approx(0)


def test_a_metric_needs_samples_to_be_measured_on() -> None:
    with pytest.raises(BrainsurgeonError, match="no samples to measure"):
        Path(Surgery(trained(), None), make_method("mp"), anchor=0.5)
    judged = Path(Surgery(trained(), None), make_method("mp"), anchor=0.5, validation=rings(1, 100))
    assert judged.samples == 100
    assert judged.go(0.5, None, 1.0).scored is not None


def test_limits_of_time_are_shared() -> None:
    path = Path(Surgery(trained(), rings(0), progress=False), Gradual(max_seconds=1000.0), anchor=0.5)
    shared = path._shared(path.method, 0.25)
    assert isinstance(shared, Gradual)
    assert shared.max_seconds == pytest.approx(250, rel=0.01)
    assert path._shared(Layerwise(), 0.25) == Layerwise()


def test_reading_and_judging_count_among_the_seconds() -> None:
    def batches() -> Iterator[Any]:
        time.sleep(0.3)
        yield rings(0)

    surgery = Surgery(trained(), Read(batches), progress=False)
    begun = time.monotonic()
    path = Path(surgery, Gradual(max_seconds=1000.0), anchor=0.5)
    assert time.monotonic() - begun >= 0.3
    assert path._deadline - begun < 1000.3


def test_the_seconds_before_a_kill_count() -> None:
    kept = Kept(legs={1: dataclasses.replace(walk(make_method("mp")).legs[0].result, seconds={"a": 300.0, "b": 200.0})})
    path = Path(Surgery(trained(), rings(0)), Gradual(max_seconds=1000.0), anchor=0.5, keep=kept)
    leg = path.go(0.5, None, 1.0)
    assert leg.result.seconds == {"a": 300.0, "b": 200.0}
    shared = path._shared(path.method, 1.0)
    assert isinstance(shared, Gradual)
    assert shared.max_seconds == pytest.approx(500, abs=10)


def test_the_seconds_of_the_search_for_a_rate_are_those_of_the_first_leg(gradual: Path) -> None:
    assert [leg.result.seconds.get("learning rate", 0.0) > 0 for leg in gradual.legs] == [True, False, False]
    total = sum(sum(leg.result.seconds.values()) for leg in gradual.legs)
    assert sum(gradual.seconds().values()) == pytest.approx(total)


def test_the_search_for_a_rate_is_guarded_as_a_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run does first and last is done around it, too: modules loaded, hooks taken off, sums in one order."""
    told: list[str] = []

    @contextmanager
    def around(name: str) -> Iterator[None]:
        told.append(name)
        yield
        told.append(f"end of {name}")

    def find_rate(self: GradualRun) -> float:
        told.append("search")
        return 0.01

    for name in ("repeatable", "taken_over"):
        monkeypatch.setattr(f"brainsurgeon.pruning.path.{name}", lambda _, name=name: around(name))
    monkeypatch.setattr("brainsurgeon.pruning.path.load", lambda: told.append("load"))
    monkeypatch.setattr(GradualRun, "find_rate", find_rate)
    path = Path(Surgery(trained(), rings(0)), Gradual(), anchor=0.5)
    assert path._find_rate(Gradual())[0] == 0.01
    assert told == ["taken_over", "repeatable", "load", "search", "end of repeatable", "end of taken_over"]


def test_the_search_for_a_rate_has_a_quarter_of_the_time_once_modules_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[float] = []

    def find_rate(self: GradualRun) -> float:
        left.append(self.task.clock.left)
        return 0.01

    def load() -> None:
        running = clock._running.get()
        assert running is not None
        left.append(running.left)

    monkeypatch.setattr("brainsurgeon.pruning.path.load", load)
    monkeypatch.setattr(GradualRun, "find_rate", find_rate)
    method = Gradual(max_seconds=1000.0)
    Path(Surgery(trained(), rings(0)), method, anchor=0.5)._find_rate(method)
    assert left == pytest.approx([1000, 250], rel=0.05)


def diverging(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the first training, and the first after a leg, diverge; return the rates of all."""
    rates: list[float] = []
    plain = GradualRun._train

    def train(self: GradualRun, steps: int, rate: float, deadline: float, stored: Any = None) -> Student:
        if stored is not None:
            rates.append(rate)
            if len(rates) in (1, 3):
                raise DivergedError("it diverged")
        return plain(self, steps, rate, deadline, stored)

    monkeypatch.setattr(GradualRun, "_train", train)
    return rates


def test_a_leg_whose_found_rate_diverges_begins_again_with_a_lower_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = diverging(monkeypatch)
    path = walk(Gradual(max_gradients=2000))
    first = rates[0]
    assert rates == pytest.approx([first, LOWER * first, LOWER * first, LOWER**2 * first, LOWER**2 * first])
    assert [leg.result.settings["learning_rate"] for leg in path.legs] == pytest.approx([rates[1], *rates[3:]])
    assert "began again" in "\n".join(path.legs[0].result.notes)
    assert path.gradients <= 2000


def test_a_leg_whose_given_rate_diverges_ends_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    diverging(monkeypatch)
    with pytest.raises(DivergedError):
        walk(Gradual(max_gradients=2000, learning_rate=0.01))


def test_validation_samples_and_the_probe_are_moved_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[Any] = []

    def move(batch: Any, device: torch.device) -> Any:
        assert device == torch.device("cpu")
        moved.append(tuple(tensor.clone() for tensor in batch))
        return moved[-1]

    monkeypatch.setattr("brainsurgeon.pruning.path.moved", move)
    path = Path(Surgery(trained(), rings(0)), Auto(), anchor=0.5, validation=[rings(1, 20), rings(2, 20)])
    assert [any(batch is one for one in moved) for batch in path.held_out] == [True, True]
    probes: list[Any] = []
    monkeypatch.setattr("brainsurgeon.pruning.path.trained", lambda method, surgery, probe: probes.append(probe))
    Path(Surgery(trained(), rings(0)), Auto(), anchor=0.5, judged=False)
    assert any(probes[0] is one for one in moved)


@pytest.mark.parametrize("validation", [None, rings(1, 100)])
def test_there_is_one_dense_copy_on_a_path(validation: Any) -> None:
    path = Path(Surgery(trained(), rings(0)), make_method("mp"), anchor=0.5, validation=validation)
    assert path._part.batch_loss is path.surgery.batch_loss


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: [data]])
@pytest.mark.parametrize("method", ["auto", "gradual", "staged"])
def test_as_many_samples_as_are_asked_for_are_enough(method: str, wrap: Any) -> None:
    def path(count: int, **settings: Any) -> Path:
        surgery = Surgery(trained(), wrap(rings(0, count)), progress=False)
        return Path(surgery, make_method(method, {"max_gradients": 200}), anchor=0.5, **settings)

    with pytest.raises(BrainsurgeonError, match="5 samples are there, and at least 6 are needed"):
        path(5)
    assert path(6).go(0.5, None, 1.0).result.pruned == 176
    assert path(5, validation=rings(1, 10)).go(0.5, None, 1.0).result.pruned == 176
    one_shot = Path(Surgery(trained(), wrap(rings(0, 5))), make_method("layerwise"), anchor=0.5)
    assert one_shot.go(0.5, None, 1.0).result.pruned == 176


def test_legs_within_a_limit_are_for_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brainsurgeon.pruning.path.world_size", lambda: 2)
    with pytest.raises(BrainsurgeonError, match="max_seconds=9 are for one process: 2 ranks"):
        Path(Surgery(trained(), rings(0), progress=False), Gradual(max_seconds=9.0), anchor=0.5)


@pytest.mark.parametrize("settings", [{"validation": rings(9, 60)}, {"judged": False}, {}], ids=["set", "unjudged", ""])
@pytest.mark.parametrize("method", ["gradual", "auto", "staged"])
def test_a_loader_is_read_once_for_all_legs(method: str, settings: dict[str, Any]) -> None:
    """Every leg has the samples that it would have read itself."""
    reads: list[int] = []

    def batches() -> Iterator[Any]:
        reads.append(1)
        return iter([rings(seed, 40) for seed in range(3)])

    def legs(data: Any) -> list[PruningResult]:
        surgery = Surgery(trained(), data, progress=False)
        path = Path(surgery, make_method(method, {"max_gradients": 1000}), anchor=0.5, **settings)
        before = len(reads)
        one = path.go(0.5, None, 0.5)
        two = path.go(0.7, one, 1.0)
        assert len(reads) == before
        return [one.result, two.result]

    found, expected = legs(Read(batches)), legs([rings(seed, 40) for seed in range(3)])
    for one, other in zip(found, expected, strict=True):
        assert one.loss_after == other.loss_after
        assert all(torch.equal(one.masks[name], mask) for name, mask in other.masks.items())


@pytest.mark.parametrize(
    "settings", [{"validation": [rings(9, 60)[0]]}, {"judged": False}, {}], ids=["set", "", "held"]
)
@pytest.mark.parametrize("method", ["gradual", "auto", "layerwise"])
@pytest.mark.parametrize("sizes", [[60, 60], [80, 40], [40, 40, 40]], ids=str)
def test_a_loader_of_two_batches_of_inputs_is_none_of_inputs_and_targets(
    method: str, settings: dict[str, Any], sizes: list[int]
) -> None:
    data = Read(lambda: iter(rings(0, 120)[0].split(sizes)))
    surgery = Surgery(trained(), data, "match", progress=False)
    given = {} if method == "layerwise" else {"max_gradients": 300}
    path = Path(surgery, make_method(method, given), anchor=0.5, **settings)
    assert path.go(0.5, None, 1.0).result.pruned == 176

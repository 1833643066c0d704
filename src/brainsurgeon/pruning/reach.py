"""A goal, reached on a path: the sparsest network that keeps a metric, or the least sparse one that fits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from brainsurgeon.cost import file_size
from brainsurgeon.cost.macs import multiply_adds_by_weight, multiply_adds_left
from brainsurgeon.engine.budget import as_budget, share_out
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import Clock, pulse
from brainsurgeon.files.compressed import compress
from brainsurgeon.network.buffers import become
from brainsurgeon.network.checks import in_words
from brainsurgeon.network.compared import direction
from brainsurgeon.network.match import Match
from brainsurgeon.network.modes import own_mode
from brainsurgeon.network.names import name_matches, plain_names
from brainsurgeon.pruning.bracket import FIRST, Bracket, search
from brainsurgeon.pruning.goal import Goal, name_of
from brainsurgeon.pruning.methods import Method
from brainsurgeon.pruning.path import Keep, Leg, Path
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.staged.pacing import TooFewGradientsError
from brainsurgeon.samples.batches import SampleStream

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

SIZED_TRIES = 8
"""How often a network is pruned further because it does not fit, or is smaller than need be, at most."""
FROM_DENSE = 0.4
"""The share of what is left of the effort that a try from the dense network takes; those that go on need less."""
LATER = 0.6
"""The share of what is left of the effort that each try after the first takes."""
FINE = 1e-4
"""The step of the sparsities that are foreseen to fit."""
Masks = Mapping[str, Tensor]


class _SpentError(Exception):
    """Time or gradients are spent, and there is a network that reaches the goal: the search ends where it stands."""

    def __init__(self, bracket: Bracket):
        super().__init__("nothing is left to try more")
        self.bracket = bracket


@own_mode()
def reach(
    surgery: Surgery,
    goal: Goal,
    method: Method,
    *,
    budget: str | dict[str, float] = "global",
    seed: int = 0,
    in_place: bool = False,
    keep: Keep | None = None,
) -> PruningResult:
    """Find the network that a goal asks for."""
    with Clock(surgery.device, surgery._callback).running():  # runs on the way have clocks of their own
        result = _reached(surgery, goal, method, budget, seed, keep)
    if not in_place:
        return result
    become(surgery.original, result.model)
    return dataclasses.replace(result, model=surgery.original)


def _reached(
    surgery: Surgery, goal: Goal, method: Method, budget: str | dict[str, float], seed: int, keep: Keep | None
) -> PruningResult:
    size = _Size(surgery, goal, budget, seed) if goal.sized else None
    anchor = FIRST if size is None else size.foreseen(1.0)
    path = Path(
        surgery,
        method,
        anchor=min(anchor, goal.most),
        budget=budget,
        seed=seed,
        metric=goal.metric,
        judged=goal.judged or goal.metric is not None or goal.validation is not None or surgery.data is not None,
        validation=goal.validation,
        keep=keep,
    )
    _check_dense(path, goal)
    best, bracket, late = _keeping(path, goal) if size is None else _fitting(path, goal, size)
    result = _told(path, goal, best, bracket, size)
    return dataclasses.replace(result, notes=(*result.notes, _late_note(path, bracket))) if late else result


def _check_dense(path: Path, goal: Goal) -> None:
    if goal.drop is not None and path.dense is not None and not path.dense.value and direction(path.metric)[1] is None:
        raise BrainsurgeonError(
            f"a drop is a share of the dense network's {name_of(path.metric)}, and that is 0: give a threshold"
        )
    if path.dense is not None and goal.judged and not goal.kept(path.metric, path.dense.value, path.dense.value):
        raise BrainsurgeonError(
            f"even the dense network misses the goal, {goal.words(name_of(path.metric))}: it has "
            f"{path.dense.value:.4g} on {path.samples} held-out samples; ask for less, or for a drop"
        )


def _keeping(path: Path, goal: Goal) -> tuple[Leg, Bracket, bool]:
    """Go up until the metric is lost, then between: every try goes on from the last network that kept it.

    Say, too, whether time or gradients were spent before the end.
    """
    assert path.dense is not None
    dense, best = path.dense.value, cast(Leg | None, None)
    allowed = goal.allowed(path.metric, dense)

    def kept(leg: Leg) -> bool:
        assert leg.scored is not None
        return goal.kept(path.metric, dense, leg.scored.value)

    def holds(sparsity: float, bracket: Bracket) -> bool:
        nonlocal best
        if best is not None and path.is_late:
            raise _SpentError(bracket)
        share = max(1 / (1 + bracket.tries_left()), FROM_DENSE if best is None else 0.0)
        try:
            leg = path.go(sparsity, best, share)
        except TooFewGradientsError:
            if best is None:
                raise
            raise _SpentError(bracket) from None
        if path.trains and not path.is_late and not kept(leg) and path.loss_at_least(leg) <= allowed:
            leg = path.go(sparsity, leg, share)  # it misses by less than can be told, and may only be short of training
        best = leg if kept(leg) else best
        return kept(leg)

    late = False
    try:
        bracket = search(holds, goal.most, goal.resolution)
    except _SpentError as error:
        bracket, late = error.bracket, True
    if best is None:
        last = path.legs[-1]
        raise BrainsurgeonError(
            f"the goal, {goal.words(name_of(path.metric))}, was missed already at a sparsity of {last.sparsity:g} "
            f"(drop {path.lost(last):.2%} on {path.samples} held-out samples): allow more, give the method more "
            "effort (max_gradients), or take one that does not train, such as layerwise: little training does harm"
        )
    return best, bracket, late


def _fitting(path: Path, goal: Goal, size: _Size) -> tuple[Leg, Bracket, bool]:
    """Go to the sparsity that is foreseen to fit, and correct it by what the network really takes.

    Say, too, whether time or gradients were spent before the end.
    """
    bracket, best, start = Bracket(goal.most, goal.resolution), None, None
    sparsity, taken, late = size.foreseen(1.0), 0, False
    for number in range(SIZED_TRIES):
        try:
            leg = path.go(sparsity, start, size.share if number == 0 else LATER)
        except TooFewGradientsError:
            if best is None:
                raise
            late = True
            break
        taken = size.of(leg.result.masks, leg.result)
        fits = taken <= size.target
        bracket = bracket.after(sparsity, not fits)
        best, start = (leg, start) if fits else (best, leg)
        if fits and taken >= (1 - goal.resolution) * size.target:
            break
        ahead = size.foreseen(taken / size.predicted(sparsity))
        later = ahead if bracket.low < ahead < (bracket.high or goal.most) else bracket.next()
        late = later is not None and best is not None and path.is_late
        if later is None or late:
            break
        sparsity = later
    if best is None:
        raise BrainsurgeonError(
            f"the network at a sparsity of {path.legs[-1].sparsity:g} takes {taken:,} {size.unit}, and "
            f"{size.target:,} are asked for: what is not pruned takes its part; ask for more, or prune more layers"
        )
    return best, bracket, late


class _Size:
    """What a network takes, in bytes or multiply-adds: foreseen from the smallest weights, and measured."""

    def __init__(self, surgery: Surgery, goal: Goal, budget: str | dict[str, float], seed: int):
        self.surgery, self.goal, self.budget = surgery, goal, budget
        self.unit = "bytes" if goal.target_macs is None else "multiply-adds"
        self._known: dict[float, int] = {}
        weights = surgery.weights
        self._parts = weights.parts
        self._values = surgery.values.abs().cpu()
        none = weights.unflatten(torch.zeros_like(self._values, dtype=torch.bool))
        self._of: Callable[[Masks], int]
        if goal.target_macs is None:
            self._state = plain_names(surgery.original.state_dict())
            header = file_size(surgery.original, none, compressed=True, recorded=True) - self._stored(none)
            self._of = lambda masks: self._stored(masks) + header
            dense = file_size(surgery.original, none, compressed=False)
        else:
            total, found = self._counted(surgery, seed)
            self._of = lambda masks: multiply_adds_left(total, found, masks)
            dense = total
        asked = float(goal.target_bytes or goal.target_macs or 0.0)
        self.dense, self.target = dense, int(asked * dense) if asked < 1 else int(asked)
        if dense <= self.target:
            raise BrainsurgeonError(f"the dense network fits already: it takes {dense:,} {self.unit}")

    @property
    def share(self) -> float:
        """The share of the effort for the first try: all of it where what a network will take is known beforehand."""
        if self.goal.target_macs is None:
            return 0.85
        return 1.0 if self.budget == "uniform" else 0.5

    def of(self, masks: Masks, result: PruningResult) -> int:
        """Return what a pruned network takes."""
        if self.goal.target_macs is not None:
            return self._of(masks)
        return file_size(result.model, masks, compressed=True, recorded=True)  # as `result.save` writes it

    def predicted(self, sparsity: float) -> int:
        """Return what a network takes whose smallest weights are gone."""
        if sparsity not in self._known:
            pulse()
            shares = share_out(self.budget, sparsity, self._parts, name_matches)
            pruned = as_budget(shares, self._values.device).lowest(self._values)
            self._known[sparsity] = self._of(self.surgery.weights.unflatten(pruned))
        return self._known[sparsity]

    def foreseen(self, ratio: float) -> float:
        """Return the least sparsity at which `ratio` times what is predicted fits; the highest where none does."""
        low, high = 0, round(self.goal.most / FINE)
        while high - low > 1:
            middle = (low + high) // 2
            if self.predicted(round(middle * FINE, 4)) * ratio <= self.target:
                high = middle
            else:
                low = middle
        return round(high * FINE, 4)

    def _stored(self, masks: Masks) -> int:
        stored, _ = compress(self._state, masks)
        return sum(tensor.numel() * tensor.element_size() for tensor in stored.values())

    def _counted(self, surgery: Surgery, seed: int) -> tuple[int, dict[str, int]]:
        if surgery.data is None:
            raise BrainsurgeonError("multiply-adds are counted on a sample: give data")
        stream = SampleStream(surgery.data, torch.Generator().manual_seed(seed), surgery.device, keep=0)
        sample = next(iter(stream.take(1)))
        loss, match = surgery.batch_loss, surgery.loss
        # What the distance from the dense outputs is asked of them is not the network's own work.
        once = partial(match.outputs, loss.model, sample) if isinstance(match, Match) else partial(loss, sample)
        with in_words(loss.model, sample, "the first sample"):
            return multiply_adds_by_weight(loss.model, once, surgery.weights.names)


def _told(path: Path, goal: Goal, best: Leg, bracket: Bracket, size: _Size | None) -> PruningResult:
    """Return the result with all that is to be said of how it was found."""
    judgement = path.judgement(best)
    record: dict[str, Any] = goal.record() | judgement
    if judgement:
        record["met"] = goal.kept(path.metric, judgement["dense"], judgement["value"])
    if size is not None:
        taken = size.of(best.result.masks, best.result)
        record |= {"unit": size.unit, "target": size.target, "taken": taken, "dense_takes": size.dense}
    record["missed_at"] = bracket.high if size is None else bracket.low or None
    record["tries"] = [_try(path, leg, size) for leg in path.legs]
    settings = best.result.settings | {"goal": record, "sample_gradients": path.gradients}
    notes = [*_notes(path, goal, best, record), *best.result.notes]
    return dataclasses.replace(
        best.result, settings=settings, seconds=path.seconds(), notes=tuple(dict.fromkeys(notes))
    )


def _try(path: Path, leg: Leg, size: _Size | None) -> dict[str, Any]:
    found: dict[str, Any] = {"sparsity": leg.sparsity, "from": leg.result.settings["path"]["from"]}
    if leg.scored is not None:
        found |= {"value": leg.scored.value, "drop": path.lost(leg)}
    if size is not None:
        found["taken"] = size.of(leg.result.masks, leg.result)
    return found | {
        "sample_gradients": leg.result.settings.get("sample_gradients", 0),
        "seconds": sum(leg.result.seconds.values()),
    }


def _notes(path: Path, goal: Goal, best: Leg, record: Mapping[str, Any]) -> list[str]:
    notes = []
    name = name_of(path.metric) if path.metric is not None else ""
    if "taken" in record:
        notes.append(
            f"goal: {goal_size(goal)}; the network takes {record['taken']:,} {record['unit']} of {record['target']:,} "
            f"(dense {record['dense_takes']:,}), found in {len(path.legs)} tries"
        )
    if "metric" in record:
        asked = f"goal: {goal.words(name)}; " if goal.judged else ""
        where = f" on {path.samples:,} {_kind(goal)} samples" if record["held_out_samples"] else ""
        sure = "" if record["interval"] is None else ", 95% interval {:.2%} to {:.2%}".format(*record["interval"])
        lost = f": a drop of {record['drop']:.2%}{sure}" if math.isfinite(record["drop"]) else ""
        notes.append(f"{asked}{name} {record['value']:.4g}, dense {record['dense']:.4g}{where}{lost}")
    if goal.sized and goal.judged and not record["met"]:
        notes.append(f"the network fits, but {name} is not kept: one that fits and keeps it was not found")
    if not goal.sized:
        notes.append(_found_between(path, goal, best, record["missed_at"]))
        notes.append(
            f"the same samples chose among {len(path.legs)} networks, which makes the drop look a little smaller than "
            "it is: measure it on samples that chose nothing"
        )
    return notes


def _found_between(path: Path, goal: Goal, best: Leg, missed: float | None) -> str:
    if missed is None:
        return f"the goal is met even at {best.sparsity:g}, the highest sparsity that was tried (most={goal.most:g})"
    lost = [leg for leg in path.legs if leg.sparsity == missed][-1]
    drop = path.lost(lost)
    assert lost.scored is not None
    told = f"the drop was {drop:.2%}" if math.isfinite(drop) else f"it was {lost.scored.value:.4g}"
    return f"{best.sparsity:g} is the highest sparsity that kept it; at {missed:g} {told}"


def _late_note(path: Path, bracket: Bracket) -> str:
    where = f"above {bracket.low:g}" if bracket.high is None else f"between {bracket.low:g} and {bracket.high:g}"
    spent = "time was up" if path.is_late else "the sample gradients were spent"
    return f"{spent} after {len(path.legs)} tries: nothing more was tried {where}, where a better one may lie"


def _kind(goal: Goal) -> str:
    return "held-out training" if goal.validation is None else "validation"


def goal_size(goal: Goal) -> str:
    """Return the size that is asked for, in words."""
    return dataclasses.replace(goal, drop=None, threshold=None).words("")

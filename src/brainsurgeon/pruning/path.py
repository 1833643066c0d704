"""A path through sparsities: legs of one method, each of which goes on from a network that an earlier one gave.

A sweep is a path whose sparsities are given; a goal is one that chooses the next by what the last came to. Methods that
train go on from the weights and the mask of the leg before, with the dense network as their teacher, and all legs
together take the sample gradients and the seconds that the method may take. One-shot methods share one examination of
the dense network. All networks are judged on the same samples, which none of them was trained on.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import torch

from brainsurgeon.distributed import world_size
from brainsurgeon.engine.budget import share_out
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.events.clock import Clock, TimeUp
from brainsurgeon.events.loading import load
from brainsurgeon.network.checks import BadSampleError, check_loss, check_suspects
from brainsurgeon.network.compared import Scored, direction, drop, interval, scored, usual_metric
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.network.loss import output_loss
from brainsurgeon.network.modes import own_mode
from brainsurgeon.network.names import name_matches
from brainsurgeon.network.repeatable import repeatable
from brainsurgeon.network.spread import taken_over
from brainsurgeon.pruning.auto.candidates import is_cut_first
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.goal import name_of, needs_samples
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.gradual.run import GradualRun, usual_batch
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.methods import Method, describe
from brainsurgeon.pruning.outcome import Start, Task
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.samples.batches import Batch, as_batches, batch_size, is_one_batch, is_tokens, moved
from brainsurgeon.samples.held_out import FEWEST, MOST_HELD_OUT, TrainingSamples, read_once

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery


class Keep(Protocol):
    """Keeps the legs of a path, so that one that is killed goes on after the last that was finished."""

    def load(self, number: int, sparsity: float) -> PruningResult | None:
        """Return a leg that was kept."""

    def save(self, number: int, result: PruningResult) -> None:
        """Keep a leg."""


@dataclass(frozen=True)
class Leg:
    """One network of a path, its number from 1, and what the metric is on the held-out samples, where it was asked."""

    number: int
    result: PruningResult
    scored: Scored | None = None

    @property
    def sparsity(self) -> float:
        """The share of the weights that was asked to go."""
        return self.result.sparsity


class Path:
    """The legs of one method on one model.

    `anchor` is the sparsity for which the learning rate of all legs is found. Without a metric nothing is judged, and
    no sample is held out for it.
    """

    def __init__(
        self,
        surgery: Surgery,
        method: Method,
        *,
        anchor: float,
        budget: str | dict[str, float] = "global",
        seed: int = 0,
        metric: Any = None,
        judged: bool = True,
        validation: Any = None,
        keep: Keep | None = None,
    ):
        begun, seconds = time.monotonic(), getattr(method, "max_seconds", None)  # reading and judging count as well
        if seconds is not None and world_size() > 1:
            raise BrainsurgeonError(
                f"several networks within max_seconds={seconds:g} are for one process: {world_size()} ranks would not "
                "end by the same clock. Give max_gradients instead, or start it without torchrun"
            )
        self.surgery, self.asked, self.budget, self.seed, self.keep = surgery, method, budget, seed, keep
        self.legs: list[Leg] = []
        self.searched, self._searching = 0, dict[str, float]()
        self._part, self.held_out = self._split(validation, judged)
        self.method = self._on_path(method)
        self.metric = self._metric(metric) if judged else None
        self.dense = self._scored(surgery.batch_loss.model)
        self._anchor = anchor
        self._deadline = math.inf if seconds is None else begun + seconds

    def go(self, sparsity: float, start: Leg | None, share: float) -> Leg:
        """Prune to a sparsity from a leg, or from the dense network, with a share of what is left of the effort."""
        number = len(self.legs) + 1
        result = self.keep.load(number, sparsity) if self.keep else None
        if result is None:
            result = self._prune(number, sparsity, start, share)
            if self.keep:
                self.keep.save(number, result)
        else:
            self.searched = result.settings["path"]["searched"]
            self._deadline -= sum(result.seconds.values())  # they were spent before the run was killed
        leg = Leg(number, result, self._scored(result.model))
        self.legs.append(leg)
        told = {} if leg.scored is None else {name_of(self.metric): leg.scored.value}
        self.surgery._callback(Event("legs", number, None, {"sparsity": sparsity, **told}))
        return leg

    @property
    def gradients(self) -> int:
        """The sample gradients that were taken so far."""
        return self.searched + sum(int(leg.result.settings.get("sample_gradients", 0)) for leg in self.legs)

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._deadline

    @property
    def samples(self) -> int:
        """The number of samples that the metric is measured on."""
        return sum(map(batch_size, self.held_out))

    @property
    def trains(self) -> bool:
        """Whether a leg goes on from the one before."""
        return isinstance(self.method, Gradual | Staged)

    def loss_at_least(self, leg: Leg) -> float:
        """Return the lower end of the interval of a leg's drop."""
        assert self.dense is not None
        assert leg.scored is not None
        found = interval(self.dense, leg.scored, *direction(self.metric), torch.Generator().manual_seed(self.seed))
        return math.inf if found is None else found[0]

    def lost(self, leg: Leg) -> float:
        """Return the drop of the metric from the dense network to a leg's."""
        assert self.dense is not None
        assert leg.scored is not None
        return drop(self.dense.value, leg.scored.value, *direction(self.metric))

    def judgement(self, leg: Leg) -> dict[str, Any]:
        """Return what the held-out samples say of a leg, with the interval of the drop, as plain values."""
        if self.dense is None or leg.scored is None:
            return {}
        generator = torch.Generator().manual_seed(self.seed)
        return {
            "metric": name_of(self.metric),
            "dense": self.dense.value,
            "value": leg.scored.value,
            "drop": self.lost(leg),
            "interval": interval(self.dense, leg.scored, *direction(self.metric), generator),
            "held_out_samples": self.samples if needs_samples(self.metric) else None,
        }

    def seconds(self) -> dict[str, float]:
        """Return where the time of all legs went."""
        found: dict[str, float] = {}
        for leg in self.legs:
            found = _added(found, leg.result.seconds)
        return found

    def _split(self, validation: Any, judged: bool) -> tuple[Surgery, list[Batch]]:
        """Return the surgery of the legs, on what they may see, and the samples that they are judged on."""
        _ = self.surgery.batch_loss  # made before it is shared: a surgery copied without it would make another
        part, data = copy.copy(self.surgery), self.surgery.data
        # Other methods mean calibration samples by that name, or have none.
        splitting = self.asked if isinstance(self.asked, Gradual | Staged | Auto) else None
        limit = None if splitting is None else splitting.max_samples
        is_read = splitting is not None and data is not None and not is_one_batch(data)
        if is_read and (validation is not None or not judged):
            part.data, part._examined = read_once(data, self.seed, limit), {}  # once for all legs
        if validation is not None:
            generator = torch.Generator().manual_seed(self.seed)
            held_out = [moved(batch, self.surgery.device) for batch in as_batches(validation, generator)]
            self._check(held_out, validation)
            return part, held_out
        if data is None or not judged:
            return part, []
        samples = TrainingSamples(data, self.seed, self.surgery.device, limit, MOST_HELD_OUT)
        if splitting is not None and samples.size < FEWEST:
            raise _too_few(samples)
        self._check(samples.everything(), self.surgery._given)
        part.data, part._examined = samples.training(), {}
        return part, samples.held_out()

    def _check(self, batches: Iterable[Batch], data: Any) -> None:
        """Refuse a sample that has no finite loss, with its place in the data."""
        try:
            check_suspects(self.surgery.batch_loss, batches)
        except BadSampleError as error:
            raise error.located(data) from error

    def _on_path(self, method: Method) -> Method:
        if not isinstance(method, Auto) or self.surgery.data is None:
            return method
        probe = next(iter(self.held_out), None)
        if probe is None:
            first = next(as_batches(self.surgery.data, torch.Generator().manual_seed(self.seed)))
            probe = moved(first, self.surgery.device)
        check_loss(self.surgery.batch_loss, probe)  # else what the model does not take fails below without words
        return trained(method, self.surgery, probe)

    def _metric(self, metric: Any) -> Any:
        if metric is not None and not needs_samples(metric):
            return metric
        if not self.held_out:
            raise BrainsurgeonError(
                "there are no samples to measure the metric on: give data, of which a part is held out, or a "
                "validation set"
            )
        check_loss(self.surgery.batch_loss, self.held_out[0])
        return metric or usual_metric(self.surgery.batch_loss.model, self.held_out[0], self.surgery.loss)

    def _scored(self, model: torch.nn.Module) -> Scored | None:
        if self.metric is None:
            return None
        home = next(model.parameters()).device
        found = scored(model.to(self.surgery.device), self.held_out, self.metric, self.surgery.loss)
        model.to(home)
        return found

    def _prune(self, number: int, sparsity: float, start: Leg | None, share: float) -> PruningResult:
        method, rate = self.method, None
        if isinstance(method, Gradual) and method.learning_rate is None:
            rate = self._rate(method, start)
        begin = None
        if start is not None and self.trains:  # any other method begins at the dense network
            begin = Start(start.result.model, start.result.masks, number)
        method = self._shared(method, share)
        found = self._part.prune(sparsity, method, budget=self.budget, seed=self.seed, start=begin, found_rate=rate)
        record = {"leg": number, "from": 0.0 if start is None else start.sparsity, "searched": self.searched}
        settings = found.settings | {"method": describe(self.asked), "path": record}
        seconds = _added(found.seconds, self._searching if number == 1 else {})
        return dataclasses.replace(found, method=self.asked.name, settings=settings, seconds=seconds)

    def _shared(self, method: Method, share: float) -> Method:
        """Return the method with a share of the gradients and seconds that are left."""
        known = {field.name for field in dataclasses.fields(method)}
        changes: dict[str, Any] = {}
        if isinstance(method, Gradual | Staged):
            changes["max_gradients"] = max(1, int((method.max_gradients - self.gradients) * share))
        if self._deadline < math.inf and "max_seconds" in known:
            changes["max_seconds"] = max(1e-3, (self._deadline - time.monotonic()) * share)
        return dataclasses.replace(method, **changes)

    def _rate(self, method: Gradual, start: Leg | None) -> float | None:
        """Return the learning rate of a leg: that of the leg it goes on from, else what is best at the anchor.

        A later leg from the dense network finds its own: the one at the anchor has failed, or was for another sparsity.
        """
        if start is not None:
            return start.result.settings.get("learning_rate")  # none where time was up before it was found
        if self.legs:
            return None
        rate, self.searched, self._searching = self._find_rate(method)
        return rate

    def _find_rate(self, method: Gradual) -> tuple[float | None, int, dict[str, float]]:
        """Return the learning rate that is best at the anchor, from the dense network, and what finding it took.

        That is sample gradients, and seconds by step.
        """
        shares = share_out(self.budget, self._anchor, self._part.weights.parts, name_matches)
        left = self._deadline - time.monotonic()
        clock = Clock(self._part.device, self.surgery._callback, None if left == math.inf else left)
        model = self._part.original
        task = Task(model, shares, self.seed, clock.notify, clock)
        with own_mode(), clock.running(), taken_over(model), repeatable(self._part.device):
            run = None
            try:
                load()
                with clock.within(0.25 * clock.left):
                    run = GradualRun(method, self._part, task)
                    return run.find_rate(), run.gradients, clock.seconds
            except TimeUp:  # then every leg takes what is usual
                return None, 0 if run is None else run.gradients, clock.seconds


def trained(method: Auto, surgery: Surgery, probe: Batch) -> Method:
    """Return what an `Auto` goes along a path with: the candidate that trains, or itself where none of them does."""
    if not method.gradients:
        return method
    limits: dict[str, Any] = {"max_gradients": method.gradients, "max_seconds": method.max_seconds}
    limits |= {"max_samples": method.max_samples, "pattern": method.pattern}
    if output_loss(surgery.loss, surgery.batch_loss.model, probe) is None:
        return Staged(name=method.name, **limits)
    texts = is_tokens(probe)
    cut = is_cut_first(surgery.weights.size, method.gradients // usual_batch(texts), texts)
    first_cut = Layerwise() if cut and linear_maps(surgery.original, surgery.weights.names) else None
    return Gradual(method.name, first_cut=first_cut, repair=method.repair, augment=method.augment, **limits)


def _too_few(samples: TrainingSamples) -> BrainsurgeonError:
    return BrainsurgeonError(
        f"too little data to compare networks: {samples.size + samples.held} samples are there, and at least "
        f"{FEWEST + 1} are needed: one to compare them on, and {FEWEST} for the method, which holds some out as well. "
        "Give more (max_samples bounds them, too), or a validation set beside them"
    )


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of both, step by step."""
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in dict.fromkeys([*one, *other])}


def shares_of(sparsities: Sequence[float]) -> list[float]:
    """Return the share of what is left that each leg of a sweep takes: by how much the kept weights shrink."""
    kept = [1.0, *(1 - sparsity for sparsity in sparsities)]
    steps = [math.log(a / b) for a, b in pairwise(kept)]
    return [step / sum(steps[number:]) for number, step in enumerate(steps)]

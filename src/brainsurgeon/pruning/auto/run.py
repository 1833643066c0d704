"""The candidates one after the other, within the time there is; the best on the held-out samples is kept."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

from brainsurgeon.distributed import agreed, check_same, is_first, world_size
from brainsurgeon.events import Event, Value
from brainsurgeon.events.clock import TimeUp
from brainsurgeon.network.buffers import become
from brainsurgeon.network.checks import check_loss, check_separate, check_suspects
from brainsurgeon.network.loss import output_loss
from brainsurgeon.pruning.auto.candidates import Candidate, candidates, candidates_in_time, seconds_of
from brainsurgeon.pruning.auto.found import Found, first_found, load_found, save_found
from brainsurgeon.pruning.gradual.loop import DivergedError
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.judging import ENOUGH, affordable, judged
from brainsurgeon.pruning.outcome import Outcome, Task
from brainsurgeon.pruning.ranks import agreed_part, check_alike
from brainsurgeon.samples.batches import batch_size
from brainsurgeon.samples.held_out import TrainingSamples

if TYPE_CHECKING:
    from brainsurgeon.pruning.auto.method import Auto
    from brainsurgeon.pruning.surgery import Surgery


KEPT = ("learning_rate", "weight_decay", "lesson", "mixup", "warp", "doubt", "without_pattern")
"""What the record of `auto` keeps of the candidate's own."""

FITTING = 0.7
"""Where training alone would be tried without a limit, it is within one, too, that it is foretold to take so much of at
most: of many samples the dense network knows those held out, which speak for cuts at once."""


class AutoRun:
    """One run of an `Auto`."""

    def __init__(self, method: Auto, surgery: Surgery, task: Task):
        self.method, self.surgery, self.task, self.clock = method, surgery, task, task.clock
        self.samples = TrainingSamples(surgery.data, task.seed, surgery.device, method.max_samples)
        check_alike(surgery.original, self.samples.everything())
        held_out = self.samples.held_out()
        self.held_out = agreed_part(affordable(surgery.batch_loss, held_out, task.clock), held_out)
        check_suspects(surgery.batch_loss, self.samples.everything())
        check_loss(surgery.batch_loss, self.held_out[0])
        self.notes = [*self.samples.notes, *check_separate(surgery.batch_loss, self.held_out[0], group=0)]
        self.part = copy.copy(surgery)
        self.part.data, self.part._examined = self.samples.training(), {}
        self.outputs = output_loss(surgery.loss, surgery.batch_loss.model, self.held_out[0])
        self.few = self.samples.held < ENOUGH
        self.losses: dict[str, float] = {}
        self.gradients = 0
        self.cut: Found | None = None
        self.diverged: dict[str, DivergedError] = {}
        self.before = judged(surgery, surgery.batch_loss.model, self.held_out)

    def run(self) -> Outcome:
        """Try the candidates; write the best one's model into the task's."""
        best: tuple[str, Found] | None = None
        for number, candidate in enumerate(self._candidates(), 1):
            found = self._found(candidate)
            if found is None:
                continue
            self.losses[candidate.name] = found.loss
            self.gradients += found.gradients
            if candidate.name == "layerwise":
                self.cut = found
            values: dict[str, Value] = {"name": candidate.name, "held-out": found.loss}
            self.task.notify(Event("candidates", number, None, values))
            if best is None or found.loss < best[1].loss:
                best = (candidate.name, found)
        if best is None:
            raise next(iter(self.diverged.values()), TimeUp())
        return self._outcome(*best)

    def _candidates(self) -> Iterator[Candidate]:
        """Yield the candidates; within a limit each is thought of when those before it are done."""
        chosen = [candidate.within(self.method.pattern) for candidate in candidates(self)]
        alone = len(chosen) == 1 and isinstance(chosen[0].method, Gradual)
        seconds = seconds_of(self, chosen) if alone or not self.clock.is_limited else math.inf
        if not self.clock.is_limited or agreed(seconds <= FITTING * self.clock.left):
            told: dict[str, Value] = {"candidates": ", ".join(candidate.name for candidate in chosen)}
            told["about seconds"] = float(f"{seconds:.2g}")
            self.task.notify(Event("plan", 0, len(chosen), told))
            yield from chosen
            return
        fitting: dict[str, Value] = {"candidates": "the cheap first, as many as fit"}
        fitting["about seconds"] = float(f"{self.clock.left:.2g}")
        self.task.notify(Event("plan", 0, None, fitting))
        try:
            for candidate in candidates_in_time(self):
                yield candidate.within(self.method.pattern)
        except TimeUp:
            self.notes.append("time was up before the next candidate was chosen")

    def _found(self, candidate: Candidate) -> Found | None:
        """Return what a candidate found, or had found before the run was resumed; None where time is up."""
        store, name = self.task.store, candidate.name.replace(", ", "-")
        kept = store.child(f"{name}-found") if store else None
        before = None if kept is None else load_found(kept, copy.deepcopy(self.task.model))
        check_same(torch.tensor(before is not None), "stored candidates", "let all of them read the same folder")
        if before is not None:
            return before
        if agreed(self.clock.left <= 0):
            self.notes.append(f"time was up before {candidate.name} was tried")
            return None
        found = self._in_time(candidate, store.child(name) if store else None)
        if not candidate.method.shares_work:
            found = first_found(found, self.task.model, self.surgery.weights.names)
        if found is None:
            reason = self.diverged.get(candidate.name) or "its time was up before it had found anything"
            self.notes.append(f"{candidate.name} was left out: {reason}")
        elif kept is not None and is_first():
            save_found(kept, found)
        return found

    def _in_time(self, candidate: Candidate, store: object) -> Found | None:
        """Return what a candidate finds; one that shares nothing out is run by every rank for itself, by its clock."""
        together = candidate.method.shares_work and self.clock.shared
        try:
            with self.clock.sharing(together), self.clock.within(candidate.share * self.clock.left):
                return self._tried(candidate, store if together or is_first() else None)
        except TimeUp:
            return None
        except DivergedError as error:  # all ranks have it at the same step
            self.diverged[candidate.name] = error
            return None

    def _tried(self, candidate: Candidate, store: object) -> Found:
        """Run one candidate on the training samples, and judge the model that it found."""
        method, model = candidate.method, copy.deepcopy(self.task.model)
        begun = None
        if isinstance(method, Gradual) and method.first_cut is not None:  # a cut that is there need not be made again
            begun = None if self.cut is None else self.cut.as_outcome(self.surgery.weights.names)
            method = method if begun or not self.clock.is_limited else dataclasses.replace(method, first_cut=None)
        # What trains shares what is held out: with few samples a second split would cost more than it tells.
        task = dataclasses.replace(self.task, model=model, store=store, begun=begun, samples=self.samples)
        outcome = method.run(self.part, task)
        with torch.no_grad():
            for name, found in (outcome.values or {}).items():
                model.get_parameter(name).copy_(found)
        record = {key: value for key, value in outcome.record.items() if key in KEPT}
        gradients = int(outcome.record.get("sample_gradients", 0))
        with self.clock.unlimited():
            loss = self._judge(model)
        return Found(loss, gradients, dict(outcome.masks), model, outcome.notes, record)

    def _judge(self, model: nn.Module) -> float:
        """Return what the held-out samples say: the loss or, where they are few, the distance from the dense."""
        distance = self.outputs if self.few else None
        with self.clock.measure("held-out"):
            loss = judged(self.surgery, model, self.held_out, distance, self.clock.shared)
        return math.inf if loss is None else loss

    def _outcome(self, name: str, best: Found) -> Outcome:
        become(self.task.model, best.model)
        told = "distance from the dense outputs" if self.few and self.outputs is not None else "loss"
        shown = ", ".join(f"{other} {value:.4g}" for other, value in self.losses.items())
        looked = sum(map(batch_size, self.held_out))
        said = f"{name} was kept: held-out {told} on {looked} samples: {shown}"
        record = {
            "chosen": name,
            "candidates": self.losses,
            "sample_gradients": self.gradients,
            "training_samples": self.samples.size,
            "held_out_samples": looked,
        }
        notes = (said, *self.notes, *best.notes)
        return Outcome(
            best.masks,
            None,
            self.held_out,
            self.before,
            seconds=self.clock.seconds,
            record=record | best.record,
            notes=notes if is_first() else (),
            measure=(lambda model: judged(self.surgery, model, self.held_out)) if world_size() > 1 else None,
        )

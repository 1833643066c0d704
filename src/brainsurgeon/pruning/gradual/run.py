"""One run of gradual pruning: the learning rate is found, the kept weights are trained with cuts in between."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import agreed, check_same, is_first, world_size
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.events.clock import TimeUp
from brainsurgeon.network.buffers import become, give_memory
from brainsurgeon.network.checks import check_attached, check_loss, check_separate, check_suspects
from brainsurgeon.network.distillation import Teacher
from brainsurgeon.network.layout import in_fast_layout
from brainsurgeon.network.match import Match
from brainsurgeon.network.statistics import train_statistics
from brainsurgeon.network.trust import AHEAD_DOUBTED
from brainsurgeon.network.weights import NORMALISATION
from brainsurgeon.pruning.gradual.drawing import drawing_of
from brainsurgeon.pruning.gradual.emphasis import find_weights
from brainsurgeon.pruning.gradual.loop import DivergedError, Training
from brainsurgeon.pruning.gradual.rates import FIRST_RATE, FIRST_REPAIR, RATES, SAYING, SEARCHED, best_rate, tries_of
from brainsurgeon.pruning.gradual.step import OPTIMIZERS
from brainsurgeon.pruning.gradual.student import Student
from brainsurgeon.pruning.gradual.views import count_views
from brainsurgeon.pruning.judging import ENOUGH, affordable, judged
from brainsurgeon.pruning.outcome import Outcome, Task
from brainsurgeon.pruning.patterns import budget_in
from brainsurgeon.pruning.ranks import agreed_part, check_alike
from brainsurgeon.samples.batches import Batch, is_tokens
from brainsurgeon.samples.held_out import TrainingSamples

if TYPE_CHECKING:
    from brainsurgeon.pruning.gradual.method import Gradual
    from brainsurgeon.pruning.surgery import Surgery

BATCH, TEXTS = 64, 8
"""Samples of a step, and texts."""
FIRST_CUT = 0.4
"""The share of the time that the first cut may take."""
LOWER, LEFT = 0.3, 0.25
"""What is taken of a rate that diverges, and the share of the gradients that must be left to begin again."""
SAVED = 30.0
"""Seconds between two states of training that are stored."""


def usual_batch(texts: bool) -> int:
    """Return the samples of a step where nothing else is said."""
    return TEXTS if texts else BATCH


class GradualRun:
    """One run of a `Gradual`."""

    def __init__(self, method: Gradual, surgery: Surgery, task: Task):
        if surgery.data is None:
            raise BrainsurgeonError(f"method {method.name!r} needs training samples: give data (only `mp` needs none)")
        self.method, self.surgery, self.task = method, surgery, task
        self.samples = task.samples or TrainingSamples(surgery.data, task.seed, surgery.device, method.max_samples)
        if task.samples is None:
            check_alike(surgery.original, self.samples.everything())
        held_out = self.samples.held_out()
        self.held_out = agreed_part(affordable(surgery.batch_loss, held_out, task.clock), held_out)
        self.notes = [] if task.samples else list(self.samples.notes)
        if task.samples is None:  # else whoever split them has looked, and tells it
            check_suspects(surgery.batch_loss, self.samples.everything())
            check_loss(surgery.batch_loss, self.held_out[0])
            if not isinstance(surgery.loss, Match):
                self.notes += check_separate(surgery.batch_loss, self.held_out[0], group=0)
        self.few = self.samples.held < ENOUGH
        self.plan = method.plan.for_few(self.few)
        self.dense = surgery.batch_loss.model
        self.tokens = is_tokens(self.held_out[0])
        norms = any(isinstance(module, NORMALISATION) for module in self.dense.modules())
        self.views = count_views(method, surgery, self.held_out[0], self.few)
        lesson = method.lesson(self.few, norms and not self.tokens, self.views)
        self.teacher = Teacher(self.dense, surgery.loss, lesson, self.held_out[0])
        if not self.teacher.can_teach:
            raise BrainsurgeonError(
                "gradual pruning must see the model's outputs: let the model give one tensor, and the loss be a name "
                'or a loss(output, target); or take loss="match", which compares any outputs with the dense model\'s'
            )
        self.teacher.dense = in_fast_layout(self.dense, lambda model: self.teacher.outputs(model, self.held_out[0]))
        self.batch_size = min(method.batch_size or usual_batch(self.tokens), method.max_gradients)
        self.final = budget_in(method.pattern, surgery, task.shares)
        check_attached(self.teacher.parts, self.dense, self.held_out[0])
        self.legs = task.start.legs if task.start else 0
        self.drawing = drawing_of(self)
        self.doubt, self.weights = find_weights(self)
        if self.weights is not None:
            self.teacher.ahead = AHEAD_DOUBTED
        self.gradients, self.saved = 0, time.monotonic()
        self.stored = self._found()
        self.begun: Outcome | None = None
        self.is_cut = self.stored is not None and bool(self.stored["step"] and self.stored["cut"])
        if self.stored is None or not self.stored["step"]:  # else the cut is in what was stored
            self._cut_first()
        self.span = (time.monotonic(), task.clock.left)

    def run(self) -> Outcome:
        """Find the rate, train, and measure."""
        method, clock = self.method, self.task.clock
        before = judged(self.surgery, self.dense, self.held_out)
        stored = self.stored
        if stored is None:
            rate = method.learning_rate or self.task.rate or agreed(self.find_rate())
            stored = self._stored(rate, self.gradients, 0)
            self._save(stored)
        self.gradients = int(stored["gradients"])
        with clock.measure("training"):
            student, rate = self._trained(stored)
        masks = student.pruned()
        values = {name: value.detach().contiguous() for name, value in student.effective().items()}
        student.hand_over(self.task.model)
        return Outcome(
            masks,
            values,
            self.held_out,
            before,
            seconds=clock.seconds,
            record={
                "learning_rate": rate,
                "batch_size": self.batch_size,
                "optimizer": self.plan.optimizer,
                "weight_decay": self.plan.weight_decay,
                "lesson": vars(self.teacher.lesson) | {},
                "views": self.views,
                "mixup": self.drawing.mixes,
                "warp": self.drawing.warps,
                "doubt": self.doubt,
                "sample_gradients": self.gradients,
                "training_gradients": self.gradients,
                "training_samples": self.samples.size,
                "held_out_samples": self.samples.held,
            },
            notes=tuple(self.notes) if is_first() else (),
            measure=(lambda model: judged(self.surgery, model, self.held_out)) if world_size() > 1 else None,
        )

    def _trained(self, stored: dict[str, Tensor]) -> tuple[Student, float]:
        """Train to the end; return the student, and the rate it had.

        If a rate that was found diverges after all, what is left of the gradients goes to a new start with a lower one.
        """
        most = self.method.max_gradients
        while True:
            rate = float(stored["rate"])
            steps = max(1, (most - int(stored["searched"])) // self.batch_size)
            try:
                return self._train(steps, rate, self.task.clock.deadline, stored), rate
            except DivergedError:
                lowest = OPTIMIZERS[self.plan.optimizer].times * RATES[0]
                if self.method.learning_rate is not None or rate < lowest or most - self.gradients < LEFT * most:
                    raise
            words = f"training diverged with the learning rate {rate:g}, and began again with {LOWER * rate:g}"
            self.notes.append(f"{words} and {most - self.gradients} of {most} sample gradients")
            self._cut_first()
            stored = self._stored(LOWER * rate, self.gradients, 0)
            self._save(stored)

    def _found(self) -> dict[str, Tensor] | None:
        """Return what was stored before the run was resumed, None where nothing was."""
        stored = self.task.store.load_part(0) if self.task.store else None
        reached = torch.tensor(-1.0 if stored is None else float(stored["step"]))
        check_same(reached, "stored states", "let all of them read the same folder")
        return stored

    def _network(self) -> nn.Module:
        """Return a copy of the network that training begins with: the dense one, or what the leg before gave."""
        model = give_memory(copy.deepcopy(self.teacher.dense))
        if self.task.start is not None:
            become(model, self.task.start.model)
        return model

    def _cut_first(self) -> None:
        """Make the first cut, if there is to be one and it is not there."""
        if self.method.first_cut is not None and self.begun is None:
            self.begun = self.task.begun or self._begin()
            self.is_cut = self.begun is not None and self.begun.values is not None

    def _begin(self) -> Outcome | None:
        """Let the start make the whole cut, on the training samples alone."""
        assert self.method.first_cut is not None
        part = copy.copy(self.surgery)
        part.data = self.samples.training()
        model = self._network()
        try:
            with self.task.clock.within(FIRST_CUT * self.task.clock.left):
                found = self.method.first_cut.run(
                    part, dataclasses.replace(self.task, model=model, store=None, samples=self.samples)
                )
        except TimeUp:
            self.notes.append("there was no time for a first cut: weights go while the others are trained")
            return None
        values = {name: model.get_parameter(name).detach() for name in self.surgery.weights.names}
        self.notes += found.notes
        return dataclasses.replace(found, values=values)

    def _deadline(self, share: float) -> float:
        """Return when a share of the time for tries and training will be up."""
        begun, seconds = self.span
        return begun + share * seconds

    def _hurried(self, tries: int) -> bool:
        """Say whether a limit of time leaves none for another try; the first is always made."""
        begun, seconds = self.span
        return bool(tries) and bool(agreed(time.monotonic() - begun > SEARCHED * seconds * tries / (tries + 1)))

    def find_rate(self) -> float:
        """Return the learning rate with the least held-out loss after a short run with all its cuts."""
        steps, tries = tries_of(self.method.max_gradients, self.batch_size)
        taken, times = 0, OPTIMIZERS[self.plan.optimizer].times

        def held(rate: float) -> float | None:
            nonlocal taken
            if taken >= tries or self._hurried(taken):
                return None
            taken += 1
            return self._try(steps, times * rate, self._deadline(0.05 * taken))

        first = FIRST_RATE if self.method.first_cut is None else FIRST_REPAIR
        with self.task.clock.measure("learning rate"):
            near = not self.few and self.method.first_cut is None
            return times * best_rate(held, first, tries, near, self._loss_of_nothing())

    @torch.no_grad()
    def _loss_of_nothing(self) -> float:
        """Return the held-out loss of the network without its prunable weights.

        Infinity where it tells nothing: the network is no better with them, or the loss is no number.
        """
        model = self._network()
        own = self._judged(model)
        for name in self.surgery.weights.names:
            model.get_parameter(name).zero_()
        found = self._judged(model)
        return found if math.isfinite(found) and own < SAYING * found else math.inf

    def _try(self, steps: int, rate: float, deadline: float) -> float:
        """Return the held-out loss after a short run at a rate, infinite where it diverges."""
        try:
            return self._held_loss(self._train(steps, rate, deadline))
        except DivergedError:  # any other error may be of one rank alone
            return math.inf

    def _train(self, steps: int, rate: float, deadline: float, stored: dict[str, Tensor] | None = None) -> Student:
        """Train a fresh copy of the network at the start, or go on from what was stored; a try stores nothing."""
        model = self._network()
        everything = self.method.repair == "all"
        for name, parameter in self.surgery.original.named_parameters():
            model.get_parameter(name).requires_grad_(parameter.requires_grad)  # what was frozen stays so
        if everything and self.batch_size >= 2 * world_size():  # a single sample has no variance
            train_statistics(model)
        student = Student(model, self.surgery.weights, everything)
        plan = self.plan
        if self.is_cut:
            plan = dataclasses.replace(plan, end=0.0, cuts=0)
            if self.begun is not None and self.begun.values is not None:
                student.begin(self.begun.values, self.begun.masks)
        elif self.task.start is not None:
            student.go_on(self.task.start.masks)

        def batches(start: int) -> Iterator[Batch]:
            return self.drawing.batches(steps, start, self.weights)

        notify = self._beat if stored is None else self.task.notify
        training = Training(student, self.teacher, batches, plan, self.final, steps, rate, notify, deadline)
        training.evenly = lambda: self.drawing.batches(steps)
        training.records = not self.tokens  # texts have many lengths, and steps long enough to hide their launches
        if student.gone:
            gone = torch.cat([student.gone[name].reshape(-1) for name in self.surgery.weights.names])
            training.gone = tuple(int(gone[group].sum()) for group in self.final.groups)
        if stored is None:
            return self._counted(training)
        searched, before = int(stored["searched"]), self.gradients

        def checkpoint(tensors: dict[str, Tensor], step: int) -> None:
            if time.monotonic() - self.saved > SAVED:
                self._save(self._stored(rate, before + training.samples, step, searched) | tensors)

        training.checkpoint = checkpoint
        start = int(stored["step"])
        return self._counted(training, start, stored if start else None)

    def _beat(self, _: Event) -> None:
        self.task.clock.beat()  # tries tell no more than that they go on

    def _counted(self, training: Training, start: int = 0, tensors: dict[str, Tensor] | None = None) -> Student:
        try:
            training.run(start, tensors)
        finally:
            self.gradients += training.samples
        return training.student

    def _stored(self, rate: float, gradients: int, step: int, searched: int | None = None) -> dict[str, Tensor]:
        """Return where the run is, as tensors by name."""
        numbers = {
            "rate": rate,
            "step": step,
            "cut": self.is_cut,
            "gradients": gradients,
            "searched": gradients if searched is None else searched,
        }
        return {name: torch.tensor(number, dtype=torch.float64) for name, number in numbers.items()}

    def _save(self, tensors: dict[str, Tensor]) -> None:
        if self.task.store and is_first():
            self.task.store.save_part(0, {name: tensor.contiguous() for name, tensor in tensors.items()})
        self.saved = time.monotonic()

    @torch.no_grad()
    def _held_loss(self, student: Student) -> float:
        """Return what the held-out samples say of a student: the distance from the dense outputs where they are few."""
        student.write(student.model)
        return self._judged(student.model.eval())

    def _judged(self, model: nn.Module) -> float:
        distance = self.teacher.parts if self.few else None
        return judged(self.surgery, model, self.held_out, distance) or 0.0

"""A model under examination: its gradients, its quadratic model and its sample loss, ready for any method."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .batches import SampleStream
from .blocks import make_blocks
from .clock import Clock
from .curvature import Fisher
from .events import Callback, Event, silent
from .examined import Examined
from .gradients import collect_gradients
from .labels import relabel
from .loss import BatchLoss, LossLike, check_loss
from .mask import make_budget
from .memory import check_fits
from .methods import Method, make_method
from .outcome import finish
from .problem import Problem
from .progress import watch
from .quadratic import QuadraticModel
from .result import PruningResult
from .sample_loss import LossJudge, SampleLoss
from .settings import Settings
from .weights import find_weights

REPORT_BATCHES = 16
"""Batches of 32 samples on which the loss before and after is reported, more where evaluation is cheap."""


class Surgery:
    """A model examined once, to be pruned at several sparsities or by several methods from the same gradients.

    Takes the settings of `brainsurgeon.prune` by name, or a `Settings`.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        loss: LossLike = "cross_entropy",
        settings: Settings | None = None,
        *,
        curvature: bool = True,
        progress: bool | None = None,
        callback: Callback | None = None,
        **options: Any,
    ):
        self.settings = settings or Settings(**options)
        self.original = model
        self.weights = find_weights(model, self.settings.include, self.settings.exclude)
        device = self.settings.device or model.get_parameter(self.weights.names[0]).device
        self.device = torch.device(device)
        self.notes: list[str] = []
        self.clock = Clock(self.device)
        self._progress, self._callback = progress, callback or silent
        self._given_loss = loss
        self._batch_loss = BatchLoss(copy.deepcopy(model).to(self.device).eval().requires_grad_(False), loss)
        self.values = self.weights.flatten(self._batch_loss.model)
        generator = torch.Generator().manual_seed(self.settings.seed)
        stream = SampleStream(data, generator, self.device, keep=self.settings.loss_samples)
        with watch(self._callback, progress) as notify:
            self.quadratic = self._examine(stream, generator, curvature, notify)
        sample = stream.sample(self.settings.loss_samples)
        self.sample_loss = SampleLoss(self._batch_loss, self.weights, self.values, sample)
        self._before = self.sample_loss.at(self.values)

    def _examine(
        self, stream: SampleStream, generator: torch.Generator, curvature: bool, notify: Callback
    ) -> QuadraticModel | None:
        """Collect the gradients and build the quadratic model from them."""
        wanted, group, dtype = self.settings.num_gradients, self.settings.gradient_batch, self.settings.dtype
        samples = _checked(self._batch_loss, stream.take(wanted * group))
        if not curvature:
            _exhaust(samples)
            return None
        check_fits(wanted, self.weights.size, dtype, self.device)
        fisher, first_order, linear = self.settings.fisher, self.settings.first_order, None
        with self.clock.measure("gradients"):
            # The first-order term is of the true labels, whichever ones the curvature is of.
            known = list(samples) if first_order and fisher != "empirical" else None
            source = samples if known is None else iter(known)
            rows = relabel(fisher, self._batch_loss, self._given_loss, source, wanted, generator)
            gradients = collect_gradients(rows.batch_loss, self.weights, rows.batches, rows.count, group, dtype, notify)
            if first_order:
                linear = gradients.mean() if known is None else self._mean_gradient(known)
        _exhaust(samples)
        self.notes += rows.notes + gradients.notes
        if gradients.rows < rows.count:
            found = f"the data gave {gradients.rows} gradients of {group} samples"
            self.notes.append(f"{found}; {rows.count} were asked for")
        blocks = make_blocks(self.settings.blocks, self.weights, gradients.rows)
        curvatures = [Fisher(gradients.columns[block], self.settings.damping) for block in blocks]
        return QuadraticModel(self.values, blocks, curvatures, linear)

    def _mean_gradient(self, samples: Sequence[Any]) -> Tensor:
        sample = SampleLoss(self._batch_loss, self.weights, self.values, samples)
        return sample.gradient(self.values, range(sample.num_batches))

    def prune(
        self,
        sparsity: float,
        method: str | Method | Sequence[Any] = "cbs",
        *,
        budget: str | dict[str, float] = "global",
        update_scale: float | str | None = None,
        in_place: bool = False,
        seed: int | None = None,
        **settings: Any,
    ) -> PruningResult:
        """Prune by one method at one sparsity; see `brainsurgeon.prune`."""
        chosen = make_method(method, settings, update_scale)
        layers = [(layer.name, layer.offset, layer.size) for layer in self.weights.layers]
        counts = make_budget(budget, sparsity, layers, self.device)
        seed = self.settings.seed if seed is None else seed
        trace: list[Event] = []
        clock = Clock(self.device)
        with watch(self._callback, self._progress, trace) as notify:
            judge = LossJudge(self.sample_loss, clock)
            generator = torch.Generator().manual_seed(seed)

            def told(event: Event) -> None:
                notify(judge.annotated(event))

            problem = Problem(self.values, counts, generator, self.quadratic, judge, told, clock)
            pruned, delta, new = operate(problem, chosen)
        with clock.measure("report"):
            before, after, predicted = self._judge(pruned, delta, new)
        model = self.original if in_place else copy.deepcopy(self.original)
        loss = self._given_loss if isinstance(self._given_loss, str) else repr(self._given_loss)
        record = {**self.settings.record(), "device": str(self.device), "loss": loss}
        return finish(
            model, self.weights, pruned, new, counts.total,
            sparsity=sparsity,
            method=chosen.name,
            predicted_change=predicted,
            loss_before=before,
            loss_after=after,
            seconds={**self.clock.seconds, **clock.seconds},
            settings={**record, "seed": seed, "budget": budget, "method": chosen.describe()},
            notes=tuple(dict.fromkeys(self.notes + (self.quadratic.notes if self.quadratic else []))),
            trace=tuple(trace),
            examined=Examined.weakly(counts, self.quadratic),
        )  # fmt: skip

    def _judge(self, pruned: Tensor, delta: Tensor, new: Tensor) -> tuple[float, float, float | None]:
        """Return the sample loss before and after, and the change that the quadratic model predicts."""
        batches = min(self.sample_loss.num_batches, max(REPORT_BATCHES, self.sample_loss.first_round(2)))
        before, after = self._before.loss(batches), self.sample_loss.at(new).loss(batches)
        if self.quadratic is None:
            return before, after, None
        return before, after, self.quadratic.cost_of_step(torch.where(pruned, -self.values.double(), delta))


def operate(problem: Problem, method: Method) -> tuple[Tensor, Tensor, Tensor]:
    """Choose P, find δw and return both with the new weights; of rival selections the best outcome is kept."""
    outcomes = []
    for selection in (method.selection, *method.rivals):
        with problem.clock.measure("selection"):
            pruned = selection(problem)
        problem.budget.check(pruned)
        with problem.clock.measure("update"):
            delta = method.update(problem, pruned).double()
        outcomes.append((pruned, delta, problem.changed(pruned, delta)))
    if len(outcomes) == 1:
        return outcomes[0]
    with problem.clock.measure("update"):
        return outcomes[problem.judge.best_weights([new for _, _, new in outcomes])]


def _checked(batch_loss: BatchLoss, batches: Iterator[Any]) -> Iterator[Any]:
    """Check the loss on the first batch, then pass all on."""
    for number, batch in enumerate(batches):
        if number == 0:
            check_loss(batch_loss, batch)
        yield batch


def _exhaust(samples: Iterator[Any]) -> None:
    """Read what is left: the sample loss is taken on the same samples whatever the method and the labels."""
    for _ in samples:
        pass

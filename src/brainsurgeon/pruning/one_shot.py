"""One shot: one examination, one mask, one update. A run of a single stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from brainsurgeon.engine.budget import Share
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.problem import Problem, Selection, Update
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.engine.update import Keep
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event
from brainsurgeon.events.clock import Clock
from brainsurgeon.network.checks import check_loss, check_separate
from brainsurgeon.network.footprint import most_samples
from brainsurgeon.network.labels import relabel
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.match import Match
from brainsurgeon.network.sample_loss import Candidate, LossJudge, SampleLoss, WholeJudge
from brainsurgeon.network.weights import Layer
from brainsurgeon.pruning.examine import Rows, examine
from brainsurgeon.pruning.outcome import Examined, Outcome, Task
from brainsurgeon.pruning.patterns import as_pattern, budget_in, feasible_mask, pattern_shares
from brainsurgeon.samples.batches import Batch, SampleStream

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

FISHERS = ("empirical", "sampled", "exact")
SELECTED = 0.6
"""The share of the time left that a selection may take, where time is limited: the update comes after it."""
REPORT_BATCHES = 16
"""Batches of 32 samples on which the loss before and after is reported, more where evaluation is cheap."""


@dataclass(frozen=True, kw_only=True)
class Examining:
    """How a one-shot method examines the model.

    Args:
        num_gradients: K, the rows of the Fisher matrix.
        gradient_batch: samples whose mean gradient is one row.
        fisher: the labels that the rows are gradients at: "empirical", the data's; "sampled", drawn from what the model
            predicts; "exact", every label by its probability, so that K rows of C classes are K/C samples.
        loss_samples: samples for the sample loss; fresh ones where the data has more than the gradients take.
        damping: λ.
        first_order: carry the mean gradient as a first-order term (the paper takes it as zero).
        blocks: "model", "layer", a largest block size, or "auto": at most 40 weights a gradient row.
        dtype: of the stored gradients; bfloat16 halves their memory.
    """

    num_gradients: int = 1000
    gradient_batch: int = 1
    fisher: str = "empirical"
    loss_samples: int = 5000
    damping: float = 1e-4
    first_order: bool = False
    blocks: str | int = "auto"
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        for name in ("num_gradients", "gradient_batch", "loss_samples"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BrainsurgeonError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.fisher not in FISHERS:
            raise BrainsurgeonError(
                'fisher says which labels the gradients are taken at: "empirical" (the data\'s), "sampled" (drawn from '
                f'the model\'s prediction) or "exact" (all, by their probabilities), got {self.fisher!r}'
            )
        if self.fisher == "exact" and self.gradient_batch > 1:
            raise BrainsurgeonError(
                f'with fisher="exact" a row is of one sample, got gradient_batch={self.gradient_batch}: leave it at 1, '
                'or take fisher="sampled"'
            )
        check_dtype(self.dtype)
        if not isinstance(self.damping, int | float) or not self.damping > 0:
            raise BrainsurgeonError(f"damping must be positive (the paper uses 1e-3 and 1e-5), got {self.damping!r}")


def check_dtype(dtype: Any) -> None:
    """Refuse a type that gradients cannot be stored in."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise BrainsurgeonError(f"gradients are stored in a floating-point type such as bfloat16, got {dtype}")


@dataclass(frozen=True)
class OneShot(Examining):
    """A selection and an update, after one examination; see `Examining` for its settings.

    The masks of `rivals` are updated too, and the sample loss says which of the outcomes is kept. With `certifiable`
    the gradients are kept with the result, for `result.certify()`.

    Args:
        whole_loss: judge every candidate on all `loss_samples`, as the paper does; by default on half of them, in races
            that stop early.
        selection_damping: the λ of the H that the selection sees, 0 for none (the paper's); by default `damping`, that
            of the update.
        pattern: "unstructured", "row", n:m such as "2:4", or blocks such as "4x4". A search that knows no pattern has
            its mask brought to the nearest one that has it.
    """

    selection: Selection = field()
    update: Update = field(default_factory=Keep)
    rivals: tuple[Selection, ...] = ()
    name: str = ""
    certifiable: bool = field(default=False, kw_only=True)
    whole_loss: bool = field(default=False, kw_only=True)
    selection_damping: float | None = field(default=None, kw_only=True)
    pattern: Pattern = field(default_factory=Pattern, kw_only=True)

    shares_work = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "pattern", as_pattern(self.pattern))
        if self.selection_damping is not None and not self.selection_damping >= 0:
            raise BrainsurgeonError(f"selection_damping must be 0 or more, or None, got {self.selection_damping!r}")

    @property
    def uses_curvature(self) -> bool:
        """Whether gradients must be collected."""
        return any(getattr(part, "uses_curvature", True) for part in self._parts)

    @property
    def uses_data(self) -> bool:
        """Whether the method asks for samples at all."""
        return self.uses_curvature or any(getattr(part, "uses_loss", True) for part in self._parts)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self.selection, self.update, *self.rivals)

    @property
    def examining(self) -> Examining:
        """The settings of its examination alone: methods that share them share the gradients."""
        return Examining(**{f.name: getattr(self, f.name) for f in fields(Examining)})

    def shares(self, shares: list[Share], sparsity: float, layers: Sequence[Layer]) -> list[Share]:
        """Return what is to go of which layers: what the budget says, in the counts that the pattern allows."""
        return pattern_shares(self.pattern, shares, sparsity, layers)

    def run(self, surgery: Surgery, task: Task) -> Outcome:
        """Examine, select, update."""
        budget, clock, notify = budget_in(self.pattern, surgery, task.shares), task.clock, task.notify
        generator = torch.Generator().manual_seed(task.seed)
        if surgery.data is None:
            problem = Problem(surgery.values, budget, generator, notify=notify, clock=clock, layers=_named(surgery))
            return self._without_data(surgery, problem)
        asked = self.uses_curvature or self.certifiable
        found = surgery.examined(self.examining, asked, notify)
        # What another method's curvature would say is left out: a result does not depend on earlier calls.
        quadratic = found.quadratic.renewed() if asked and found.quadratic is not None else None
        judge = (WholeJudge if self.whole_loss else LossJudge)(found.sample_loss, clock)

        def annotated(event: Event) -> None:
            notify(judge.annotated(event))

        problem = Problem(surgery.values, budget, generator, quadratic, judge, annotated, clock, _named(surgery))
        pruned, delta, new = operate(problem, self, self._selecting(problem, found))
        predicted = None
        if quadratic is not None:
            predicted = quadratic.cost_of_step(torch.where(pruned, -surgery.values.double(), delta))
        return Outcome(
            surgery.weights.unflatten(pruned),
            surgery.weights.unflatten(new),
            found.report,
            found.before.loss(len(found.report)),
            predicted,
            {**(found.seconds if asked else {}), **clock.seconds},
            notes=(*(found.notes if asked else ()), *(quadratic.notes if quadratic else ())),
            examined=Examined.of(budget, found.quadratic, self.certifiable),
        )

    def _selecting(self, problem: Problem, found: OneExamination) -> Problem:
        """Return the problem as the selection sees it: with a damping of its own, if one was given."""
        if self.selection_damping is None or problem.maybe_quadratic is None or found.damped is None:
            return problem
        return replace(problem, maybe_quadratic=found.damped(self.selection_damping))

    def _without_data(self, surgery: Surgery, problem: Problem) -> Outcome:
        if self.uses_data:
            raise BrainsurgeonError(f"method {self.name!r} needs training samples: give data (only `mp` needs none)")
        pruned, _, new = operate(problem, self, problem)
        masks, values = surgery.weights.unflatten(pruned), surgery.weights.unflatten(new)
        return Outcome(masks, values, seconds=problem.clock.seconds)


def _named(surgery: Surgery) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((layer.name, layer.shape) for layer in surgery.weights.layers)


def operate(problem: Problem, method: OneShot, selecting: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Choose P, find δw and return both with the new weights; of rival selections the best outcome is kept.

    `selecting` is the problem as the selections see it.
    """
    outcomes = []
    for selection in (method.selection, *method.rivals):
        with problem.clock.measure("selection"), problem.clock.within(SELECTED * problem.clock.left):
            pruned = feasible_mask(selecting, selection(selecting))
        problem.budget.check(pruned)
        with problem.clock.measure("update"):
            delta = method.update(problem, pruned).double()
        outcomes.append((pruned, delta, problem.changed(pruned, delta)))
    if len(outcomes) == 1:
        return outcomes[0]
    with problem.clock.measure("update"):
        return outcomes[problem.judge.best_weights([new for _, _, new in outcomes])]


@dataclass(frozen=True)
class OneExamination:
    """What one examination found: the quadratic model (None where no curvature was asked for) and the sample loss.

    `damped` makes the same model at another damping.
    """

    quadratic: QuadraticModel | None
    damped: Callable[[float], QuadraticModel] | None
    sample_loss: SampleLoss
    before: Candidate
    notes: tuple[str, ...]
    seconds: dict[str, float]

    @property
    def report(self) -> list[Batch]:
        """The batches on which the loss before and after is reported."""
        sample = self.sample_loss
        return sample.batches[: min(sample.num_batches, max(REPORT_BATCHES, sample.first_round(2)))]


def examine_once(surgery: Surgery, settings: Examining, curvature: bool, notify: Callback) -> OneExamination:
    """Read the samples, collect the gradients where curvature is asked for, and take the sample loss."""
    generator, values = torch.Generator().manual_seed(surgery.seed), surgery.values  # refused here if not finite
    stream = SampleStream(surgery.data, generator, surgery.device, keep=settings.loss_samples)
    notes: list[str] = []
    taken = stream.take(settings.num_gradients * settings.gradient_batch)
    of_samples = curvature and not isinstance(surgery.loss, Match)  # whose samples have no loss at the dense weights
    samples = _checked(surgery.batch_loss, taken, settings.gradient_batch if of_samples else 0, notes)
    clock, quadratic, damped = Clock(surgery.device), None, None
    if curvature:
        with clock.measure("gradients"):
            damped, more = _curvature(surgery, settings, samples, generator, notify)
            quadratic = damped(settings.damping)
            notes.extend(more)
    for _ in samples:  # the sample loss is taken on the same samples whatever the method and the labels
        pass
    sample = SampleLoss(surgery.batch_loss, surgery.weights, values, stream.sample(settings.loss_samples))
    return OneExamination(quadratic, damped, sample, sample.at(values), tuple(notes), clock.seconds)


def _curvature(
    surgery: Surgery, settings: Examining, samples: Iterator[Batch], generator: torch.Generator, notify: Callback
) -> tuple[Callable[[float], QuadraticModel], tuple[str, ...]]:
    # The first-order term is of the true labels, whichever ones the curvature is of.
    apart = settings.first_order and (settings.fisher != "empirical" or isinstance(surgery.loss, Match))
    known = list(samples) if apart else None
    source = samples if known is None else iter(known)
    labelled = relabel(settings.fisher, surgery.batch_loss, surgery.loss, source, settings.num_gradients, generator)
    held = most_samples(surgery.data) // settings.gradient_batch or 1  # there is no need of room for more
    count = int(min(labelled.count, held * labelled.per_sample))
    rows = Rows(count, settings.gradient_batch, settings.blocks, dtype=settings.dtype)
    found = examine("fisher", labelled.batch_loss, surgery.weights, labelled.batches, rows, notify)
    linear = None
    if known is not None:
        sample = SampleLoss(surgery.batch_loss, surgery.weights, surgery.values, known)
        linear = sample.gradient(surgery.values, range(sample.num_batches))
    elif settings.first_order:
        linear = found.gradient()
    notes = labelled.notes + found.notes
    if found.rows < labelled.count:
        gave = f"the data gave {found.rows} gradients of {settings.gradient_batch} samples"
        notes += (f"{gave}; {labelled.count} were asked for",)
    return partial(found.model, surgery.values, linear=linear), notes


def _checked(batch_loss: BatchLoss, batches: Iterator[Batch], group: int, notes: list[str]) -> Iterator[Batch]:
    """Check the loss on the first batch, and that it is one of each sample where gradients are taken; pass all on."""
    for number, batch in enumerate(batches):
        if number == 0:
            check_loss(batch_loss, batch)
            notes.extend(check_separate(batch_loss, batch, group) if group else ())
        yield batch

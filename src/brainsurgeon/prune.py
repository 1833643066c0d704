"""The product on one page: examine a model, choose what goes, change what stays.

    data, loss → gradients → blocks → curvature → quadratic model
    selection(problem) → pruned;  update(problem, pruned) → δw;  weights ← w + δw, exactly 0 on pruned
"""

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
from .errors import BrainsurgeonError
from .events import Callback, Event, silent
from .gradients import collect_gradients
from .loss import BatchLoss, LossLike, check_loss
from .mask import Budget, exact_count, make_budget
from .memory import check_fits
from .methods import Method, make_method
from .problem import Problem
from .progress import watch
from .quadratic import QuadraticModel
from .result import LayerRecord, PruningResult
from .sample_loss import LossJudge, SampleLoss
from .weights import Rule, find_weights

REPORT_BATCHES = 16
"""Batches of 32 samples on which the loss before and after is reported, more where evaluation is cheap."""


def prune(
    model: nn.Module,
    data: Any,
    sparsity: float,
    method: str | Method | Sequence[Any] = "cbs",
    loss: LossLike = "cross_entropy",
    *,
    budget: str | dict[str, float] = "global",
    update_scale: float | str | None = None,
    seed: int = 0,
    in_place: bool = False,
    progress: bool | None = None,
    callback: Callback | None = None,
    include: Rule = None,
    exclude: Rule = None,
    blocks: str | int = "auto",
    num_gradients: int = 1000,
    gradient_batch: int = 1,
    loss_samples: int = 5000,
    damping: float = 1e-4,
    first_order: bool = False,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    **settings: Any,
) -> PruningResult:
    """Remove ⌈sparsity · N⌉ weights of a trained model so that the loss grows as little as possible.

    Args:
        model: any module; a pruned copy is returned unless `in_place`.
        data: training samples: `(inputs, targets)` or a dict of tensors, a data set, a loader, or batches.
        sparsity: the share of the prunable weights to remove, between 0 and 1.
        method: a name such as "cbs", "cbs-s", "wf", "mp", or a pair of a selection and an update object.
        loss: a name, a `loss(output, target)`, a `loss(model, batch)` (its first parameter called `model`), or
            "model" where the model's output holds its own loss.
        budget: "global", "uniform" over layers, or {layer pattern: sparsity} with the rest shared by the others.
        update_scale: the part of the update that is taken: a number, or "auto" (chosen on the sample loss).
        seed: of all random draws: samples, buckets.
        in_place: change the model itself.
        progress: show bars; by default where there is a terminal.
        callback: called with an `Event` as the work goes on.
        include: names, glob patterns or module types to prune (default: all weights of two dimensions or more).
        exclude: names, patterns or types to leave alone.
        blocks: "model", "layer", a largest block size, or "auto": at most 40 weights a gradient row.
        num_gradients: K, the rows of the empirical Fisher matrix.
        gradient_batch: samples whose mean gradient is one row.
        loss_samples: samples for the sample loss; fresh ones where the data has more than the gradients take.
        damping: λ.
        first_order: carry the mean gradient as a first-order term (the paper takes it as zero).
        device: where to work; by default where the model is.
        dtype: of the stored gradients; bfloat16 halves their memory.
        settings: hyper-parameters of the selection by name, such as num_draws=50, window=10, pool=256.
    """
    chosen = make_method(method, settings, update_scale)
    exact_count(sparsity, 1)  # refuse a bad sparsity before any work
    surgery = Surgery(
        model, data, loss, curvature=chosen.uses_curvature, include=include, exclude=exclude, blocks=blocks,
        num_gradients=num_gradients, gradient_batch=gradient_batch, loss_samples=loss_samples, damping=damping,
        first_order=first_order, device=device, dtype=dtype, seed=seed, progress=progress, callback=callback,
    )  # fmt: skip
    return surgery.prune(sparsity, chosen, budget=budget, in_place=in_place, seed=seed)


class Surgery:
    """A model examined once, to be pruned at several sparsities or by several methods from the same gradients."""

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        loss: LossLike = "cross_entropy",
        *,
        curvature: bool = True,
        include: Rule = None,
        exclude: Rule = None,
        blocks: str | int = "auto",
        num_gradients: int = 1000,
        gradient_batch: int = 1,
        loss_samples: int = 5000,
        damping: float = 1e-4,
        first_order: bool = False,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        progress: bool | None = None,
        callback: Callback | None = None,
    ):
        for name, number in (("num_gradients", num_gradients), ("gradient_batch", gradient_batch),
                             ("loss_samples", loss_samples)):  # fmt: skip
            if number < 1:
                raise BrainsurgeonError(f"{name} must be at least 1, got {number}")
        self.original = model
        self.weights = find_weights(model, include, exclude)
        home = model.get_parameter(self.weights.names[0]).device
        self.device = home if device is None else torch.device(device)
        self.settings = {
            "blocks": blocks, "num_gradients": num_gradients, "gradient_batch": gradient_batch,
            "loss_samples": loss_samples, "damping": damping, "first_order": first_order, "seed": seed,
            "dtype": str(dtype), "device": str(self.device), "loss": loss if isinstance(loss, str) else repr(loss),
        }  # fmt: skip
        self.notes: list[str] = []
        self.clock = Clock(self.device)
        self._progress, self._callback = progress, callback or silent
        self._batch_loss = BatchLoss(copy.deepcopy(model).to(self.device).eval().requires_grad_(False), loss)
        self.values = self.weights.flatten(self._batch_loss.model)
        stream = SampleStream(data, torch.Generator().manual_seed(seed), self.device, keep=loss_samples)
        with watch(self._callback, progress) as notify:
            self.quadratic = self._examine(stream, curvature, notify)
        self.sample_loss = SampleLoss(self._batch_loss, self.weights, self.values, stream.sample(loss_samples))
        self._before = self.sample_loss.at(self.values)

    def _examine(self, stream: SampleStream, curvature: bool, notify: Callback) -> QuadraticModel | None:
        """Collect the gradients and build the quadratic model from them."""
        wanted, group = self.settings["num_gradients"], self.settings["gradient_batch"]
        samples = _checked(self._batch_loss, stream.take(wanted * group))
        if not curvature:
            for _ in samples:  # the sample loss is taken on the same samples whatever the method
                pass
            return None
        dtype = getattr(torch, self.settings["dtype"].removeprefix("torch."))
        check_fits(wanted, self.weights.size, dtype, self.device)
        with self.clock.measure("gradients"):
            gradients = collect_gradients(self._batch_loss, self.weights, samples, wanted, group, dtype, notify)
        self.notes += gradients.notes
        if gradients.rows < wanted:
            self.notes.append(f"the data gave {gradients.rows} gradients of {group} samples; {wanted} were asked for")
        blocks = make_blocks(self.settings["blocks"], self.weights, gradients.rows)
        curvatures = [Fisher(gradients.columns[block], self.settings["damping"]) for block in blocks]
        linear = gradients.columns.mean(1, dtype=torch.float32).double() if self.settings["first_order"] else None
        return QuadraticModel(self.values, blocks, curvatures, linear)

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
        trace: list[Event] = []
        clock = Clock(self.device)
        with watch(self._callback, self._progress, trace) as notify:
            generator = torch.Generator().manual_seed(self.settings["seed"] if seed is None else seed)
            judge = LossJudge(self.sample_loss, clock)
            problem = Problem(self.values, counts, generator, self.quadratic, judge, notify, clock)
            pruned, delta, new = operate(problem, chosen)
        return self._result(sparsity, chosen, counts, pruned, new, delta, clock, trace, in_place)

    def _result(
        self, sparsity: float, method: Method, counts: Budget, pruned: Tensor, new: Tensor, delta: Tensor,
        clock: Clock, trace: list[Event], in_place: bool,
    ) -> PruningResult:  # fmt: skip
        if not bool(torch.isfinite(new).all()):
            raise BrainsurgeonError("the update gave weights that are not finite: raise the damping")
        batches = min(self.sample_loss.num_batches, max(REPORT_BATCHES, self.sample_loss.first_round(2)))
        with clock.measure("report"):
            before, after = self._before.loss(batches), self.sample_loss.at(new).loss(batches)
            predicted = self.quadratic.cost_of_step(torch.where(pruned, -self.values.double(), delta)) \
                if self.quadratic is not None else None  # fmt: skip
        model = self.original if in_place else copy.deepcopy(self.original)
        self.weights.assign(model, new)
        masks = {name: mask.clone() for name, mask in self.weights.unflatten(pruned).items()}
        records = tuple(
            LayerRecord(layer.name, layer.shape, int(pruned[layer.columns].sum()), layer.size)
            for layer in self.weights.layers
        )
        _verify(model, masks, counts.total)
        settings = {**self.settings, "method": method.describe()}
        notes = tuple(dict.fromkeys(self.notes + (self.quadratic.notes if self.quadratic else [])))
        seconds = {**self.clock.seconds, **clock.seconds}
        return PruningResult(
            model, masks, records, sparsity, method.name, predicted, before, after, seconds, settings, notes, tuple(trace)
        )


def operate(problem: Problem, method: Method) -> tuple[Tensor, Tensor, Tensor]:
    """Choose P, find δw and return both with the new weights; of rival selections the best outcome is kept."""
    outcomes = []
    for selection in (method.selection, *method.rivals):
        with problem.clock.measure("selection"):
            pruned = selection(problem)
        problem.budget.check(pruned)
        with problem.clock.measure("update"):
            delta = method.update(problem, pruned).double()
        new = (problem.weights.double() + delta).to(problem.weights.dtype).masked_fill(pruned, 0.0)
        outcomes.append((pruned, delta, new))
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


def _verify(model: nn.Module, masks: dict[str, Tensor], total: int) -> None:
    """Count again, in the model itself: exactly ⌈rN⌉ weights are gone, and each of them is exactly zero."""
    found = sum(int(mask.sum()) for mask in masks.values())
    zero = all(bool((model.get_parameter(name).detach()[mask.to(model.get_parameter(name).device)] == 0).all())
               for name, mask in masks.items())  # fmt: skip
    if found != total or not zero:
        raise AssertionError(f"{found} weights were pruned where {total} should be, or some are not zero: a bug")

"""What the loss would feel of each layer alone, at several sparsities: foretold by quadratic models, and measured.

A layer that is a linear map is pruned by the cheap mask and least squares of the layer-wise allocation, and its error
½Σ_o c_o Δw_o A Δw_oᵀ (moments A of its inputs, costs c of its outputs) is the change of the loss that is foretold. Any
other layer is pruned by w_i²H_ii on its own Fisher matrix, with the joint update, and Q(d) is foretold; where that
matrix would be too large, its diagonal, and nothing makes up for what goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import world_size
from brainsurgeon.engine.budget import exact_count, lowest
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event, silent
from brainsurgeon.events.clock import Clock
from brainsurgeon.events.progress import watch
from brainsurgeon.network.checks import BadSampleError, check_loss, check_suspects
from brainsurgeon.network.gradients import mean_squares
from brainsurgeon.network.labels import relabel
from brainsurgeon.network.linear_maps import LinearMap, linear_maps
from brainsurgeon.network.loss import BatchLoss, LossLike
from brainsurgeon.network.match import Match
from brainsurgeon.network.modes import own_mode, without_cache
from brainsurgeon.network.output_costs import output_costs
from brainsurgeon.network.partition import Chain
from brainsurgeon.network.streaming import Stream, streamed_loss
from brainsurgeon.network.weights import Layer, Rule, laid_out
from brainsurgeon.pruning.examine import Rows, examine
from brainsurgeon.pruning.layerwise.run import LayerRun
from brainsurgeon.pruning.layerwise.solvers import Admm
from brainsurgeon.pruning.sensitivities import LayerSensitivity, Sensitivity
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.samples.batches import Batch, SampleStream, batch_size, first, is_tokens, regroup

SPARSITIES = (0.5, 0.7, 0.8, 0.9, 0.95)
TOKENS, IMAGES = 8, 32
"""Samples that go through the network at once: sequences of tokens, and everything else."""
COSTED = 256
"""Samples whose gradients at the layers' outputs say what an error costs; a batch each where they are tokens."""
FISHER_NUMBERS = 100_000_000
"""Gradients of layers that are no linear maps are stored up to so many numbers; else the diagonal is taken."""
LINEAR, FISHER, DIAGONAL, UNUSED = "moments", "Fisher", "Fisher diagonal", "not called"


def sensitivity(
    model: nn.Module,
    data: Any,
    loss: LossLike = "cross_entropy",
    sparsities: tuple[float, ...] = SPARSITIES,
    *,
    include: Rule = None,
    exclude: Rule = None,
    measure: bool = True,
    max_samples: int = 1000,
    loss_samples: int = 256,
    damping: float = 0.01,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: bool | None = None,
    callback: Callback | None = None,
) -> Sensitivity:
    """Return what the loss would feel of each layer alone at several sparsities, foretold and measured.

    Args:
        model: any module; it is not changed.
        data: training samples, as for `brainsurgeon.prune`.
        loss: as for `brainsurgeon.prune`; "match" needs no labels.
        sparsities: rising, between 0 and 1.
        include: as for `brainsurgeon.prune`.
        exclude: as for `brainsurgeon.prune`.
        measure: prune each layer alone, at each sparsity, and measure the loss; else it is only foretold.
        max_samples: samples that moments and gradients are taken of.
        loss_samples: samples that the loss is measured on: others than those, where the data has more.
        damping: of the moments and of the Fisher matrices, relative to their mean diagonal.
        seed: of all random draws.
        device: where to work; by default where the model is. It must hold the model.
        progress: show bars; by default where there is a terminal.
        callback: called with an `Event` as the work goes on.
    """
    rising = tuple(float(s) for s in sparsities)
    for sparsity in rising:
        exact_count(sparsity, 1)
    if not rising or list(rising) != sorted(set(rising)):
        raise BrainsurgeonError(f"sparsities must rise, such as (0.5, 0.7, 0.9), got {sparsities}")
    if data is None:
        raise BrainsurgeonError("sensitivity needs samples: give data (inputs alone with loss='match')")
    if world_size() > 1:
        raise BrainsurgeonError("sensitivity is found out by one process: call it on one of the ranks, without a group")
    surgery = Surgery(model, data, loss, include=include, exclude=exclude, seed=seed, device=device)
    with own_mode(), watch(callback or silent, progress, []) as told, (clock := Clock(surgery.device, told)).running():
        try:
            return _Survey(surgery, rising, max_samples, loss_samples, damping, measure, clock).run()
        except BadSampleError as error:
            raise error.located(surgery._given) from error


@dataclass
class _Survey:
    """One survey of a network's layers; `found` holds each layer's weights at the sparsity of a number."""

    surgery: Surgery
    sparsities: tuple[float, ...]
    max_samples: int
    loss_samples: int
    damping: float
    measure: bool
    clock: Clock
    found: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self) -> Sensitivity:
        """Foretell, measure, and put both together."""
        loss, device = self.surgery.batch_loss, self.surgery.device
        stream = SampleStream(
            self.surgery.data, torch.Generator().manual_seed(self.surgery.seed), device, keep=self.loss_samples
        )
        batches = self._batches(list(stream.take(self.max_samples)))
        check_loss(loss, batches[0])
        check_suspects(loss, batches)
        measured_on = self._batches(stream.sample(self.loss_samples))
        with without_cache(loss.model):
            foretold = self._by_moments(batches) | self._by_fisher(batches)
            before, measured = self._measured(measured_on)
        layers = tuple(
            LayerSensitivity(la.name, la.shape, la.size, *foretold[la.name], measured.get(la.name))
            for la in self.surgery.weights.layers
        )
        if not self.measure:
            self.notes.append("nothing was measured: the changes are those that the quadratic models foretell")
        samples = sum(map(batch_size, measured_on))
        return Sensitivity(self.sparsities, layers, before, samples, tuple(self.notes))

    def _batches(self, read: list[Batch]) -> list[Batch]:
        if not read:
            raise BrainsurgeonError("the data is empty: there is no sample to find the sensitivity on")
        tokens = is_tokens(read[0])
        return list(regroup(read, TOKENS if tokens else IMAGES))

    @property
    def notify(self) -> Callback:
        return self.clock.notify

    def _keep(self, layer: LinearMap, number: int, weights: Tensor) -> None:
        if self.measure:
            self.found[layer.name, number] = weights.cpu()

    def _stream(self, batches: list[Batch], layers: list[LinearMap]) -> Stream:
        loss = self.surgery.batch_loss
        return Stream(loss.model, loss, batches, layers, Chain(), self.surgery.device)

    def _by_moments(self, batches: list[Batch]) -> dict[str, tuple[str, tuple[float, ...]]]:
        """Return how and what is foretold of the linear maps."""
        loss = self.surgery.batch_loss
        layers = linear_maps(loss.model, self.surgery.weights.names)
        if not layers:
            return {}
        costs = _costs(self.surgery, loss, layers, batches)
        run = LayerRun(Admm(), Pattern(), self.damping, costs, self.notify, self.clock)
        curves = {c.name: c.errors for c in run.curves(self._stream(batches, layers), self.sparsities, self._keep)}
        unused = [layer.name for layer in layers if layer.name not in curves]
        if unused:
            self.notes.append(f"not called for the samples, so the loss feels nothing of it: {', '.join(unused)}")
        whole = (0.0,) * len(self.sparsities)
        return {la.name: (LINEAR, curves[la.name]) if la.name in curves else (UNUSED, whole) for la in layers}

    def _by_fisher(self, batches: list[Batch]) -> dict[str, tuple[str, tuple[float, ...]]]:
        """Return how and what is foretold of the other layers."""
        maps = {layer.name for layer in linear_maps(self.surgery.batch_loss.model, self.surgery.weights.names)}
        others = laid_out([layer for layer in self.surgery.weights.layers if layer.name not in maps])
        if not others.layers:
            return {}
        rows, generator = sum(map(batch_size, batches)), torch.Generator().manual_seed(self.surgery.seed)
        labelled = relabel("empirical", self.surgery.batch_loss, self.surgery.loss, iter(batches), rows, generator)
        values = others.flatten(self.surgery.batch_loss.model)
        if rows * others.size > FISHER_NUMBERS:
            _, squares, _, _ = mean_squares(labelled.batch_loss, others, labelled.batches, rows, 1, self.notify)
            return {la.name: (DIAGONAL, self._by_diagonal(la, values, squares)) for la in others.layers}
        taking = Rows(rows, blocks="layer", relative=True, may_vanish=True)
        found = examine("fisher", labelled.batch_loss, others, labelled.batches, taking, self.notify)
        models = [
            QuadraticModel(values[block], [slice(0, block.stop - block.start)], [curvature])
            for block, curvature in zip(found.blocks, found.curvatures(self.damping), strict=True)
        ]
        return {la.name: (FISHER, self._by_joint(la, m)) for la, m in zip(others.layers, models, strict=True)}

    def _by_joint(self, layer: Layer, quadratic: QuadraticModel) -> tuple[float, ...]:
        errors = []
        for number, sparsity in enumerate(self.sparsities):
            pruned = lowest(quadratic.self_impact, exact_count(sparsity, layer.size))
            step = quadratic.compensate(pruned)
            new = (quadratic.w + step).masked_fill(pruned, 0.0)
            errors.append(quadratic.cost_of_step(step))
            if self.measure:
                self.found[layer.name, number] = new.view(layer.shape).float().cpu()
        return tuple(errors)

    def _by_diagonal(self, layer: Layer, values: Tensor, squares: Tensor) -> tuple[float, ...]:
        own = values[layer.columns]
        impact = own.double().square() * squares[layer.columns]
        errors = []
        for number, sparsity in enumerate(self.sparsities):
            pruned = lowest(impact, exact_count(sparsity, layer.size))
            errors.append(float(impact[pruned].sum()) / 2)
            if self.measure:
                self.found[layer.name, number] = own.masked_fill(pruned, 0.0).view(layer.shape).cpu()
        return tuple(errors)

    def _measured(self, batches: list[Batch]) -> tuple[float, dict[str, tuple[float, ...]]]:
        """Return the loss of the dense network, and its change with each layer alone pruned, at each sparsity."""
        stream = self._stream(batches, [])
        before = streamed_loss(stream)
        changes: dict[str, tuple[float, ...]] = {}
        names = list(dict.fromkeys(name for name, _ in self.found))
        for done, name in enumerate(names, 1):
            changes[name] = tuple(self._loss_with(stream, name, n) - before for n in range(len(self.sparsities)))
            self.notify(Event("measured", done, len(names)))
        unused = (0.0,) * len(self.sparsities)
        missing = [name for name in self.surgery.weights.names if name not in changes] if self.measure else []
        return before, changes | dict.fromkeys(missing, unused)

    def _loss_with(self, stream: Stream, name: str, number: int) -> float:
        """Return the loss with one layer alone pruned, at the sparsity of a number."""
        new, model = self.found[name, number], self.surgery.batch_loss.model
        alone = laid_out([Layer(name, tuple(new.shape), 0, new.numel())])
        with alone.lent_to(model, new.reshape(-1).to(self.surgery.device)):
            return streamed_loss(stream)


def _costs(surgery: Surgery, loss: BatchLoss, layers: list[LinearMap], batches: list[Batch]) -> dict[str, Tensor]:
    """Return what the loss feels of an error of each row."""
    some = list(first(batches, COSTED))
    if isinstance(surgery.loss, Match):
        drawn = list(surgery.loss.drawn(some, torch.Generator().manual_seed(surgery.seed)))
        return output_costs(surgery.loss.pulled(loss.model, mean=True), layers, drawn)
    return output_costs(loss, layers, some)

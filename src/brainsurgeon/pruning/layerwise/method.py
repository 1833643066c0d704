"""Layer-wise pruning: no gradient for each sample, no matrix of the model's size; all work is matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import broadcast, gather_words, is_first, world_size
from brainsurgeon.engine.budget import Share
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.agreement import parts_agree
from brainsurgeon.network.answers import has_targets
from brainsurgeon.network.checks import check_loss, check_separate, check_suspects
from brainsurgeon.network.held import held_in, passing
from brainsurgeon.network.linear_maps import LinearMap, linear_maps
from brainsurgeon.network.loss import BatchLoss, LossLike
from brainsurgeon.network.match import Match
from brainsurgeon.network.modes import evaluated, without_cache
from brainsurgeon.network.partition import Chain, find_chain, finest_chain
from brainsurgeon.network.places import places_at_once
from brainsurgeon.network.streaming import Stream, streamed_loss
from brainsurgeon.network.weights import Layer
from brainsurgeon.pruning.layerwise.costs import LOADED_WHOLE, row_costs
from brainsurgeon.pruning.layerwise.counts import shared_counts
from brainsurgeon.pruning.layerwise.ranks import check_ranks
from brainsurgeon.pruning.layerwise.run import LayerRun, tried_for
from brainsurgeon.pruning.layerwise.solvers import Admm, LayerSolver
from brainsurgeon.pruning.layerwise.unseen import by_magnitude, maps_by_magnitude
from brainsurgeon.pruning.outcome import Outcome, Task
from brainsurgeon.pruning.patterns import as_pattern, check_divides, pattern_shares
from brainsurgeon.pruning.ranks import own_share
from brainsurgeon.samples.batches import (
    Batch,
    SampleStream,
    batch_size,
    cut,
    first,
    is_tokens,
    map_tensors,
    regroup,
)

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

TOKENS, IMAGES = 8, 32
"""Samples that go through a part at once: sequences of tokens, and everything else."""
REPORTED = 32
"""Samples on which the loss before and after is reported, and whose slopes at the layers' outputs are their costs."""
CURVED = 4
"""The errors for the allocation are those of one batch in so many, and of no fewer samples than are reported on."""


@dataclass(frozen=True)
class Layerwise:
    """Prune each layer by the moments of its inputs, in the order of the forward pass, block after block.

    Args:
        solver: how one layer is pruned: `Admm`, `SparseGPT`, `Scored` or a `LayerSolver` of your own.
        name: what the method is called in reports.
        pattern: "unstructured", "row" (the same count in every row), n:m such as "2:4", or blocks such as "4x4".
        max_samples: calibration samples.
        damping: added to the moments, relative to their mean diagonal.
        costs: "loss" weighs rows and layers by the squared gradients of the loss at their outputs, "none" does not;
            with a budget over several layers "none" weighs all outputs alike.
    """

    solver: LayerSolver = field(default_factory=Admm)
    name: str = "layerwise"
    pattern: Pattern = field(default_factory=Pattern, kw_only=True)
    max_samples: int = field(default=1000, kw_only=True)
    damping: float = field(default=0.01, kw_only=True)
    costs: str = field(default="loss", kw_only=True)

    uses_curvature = True
    uses_data = True
    shares_work = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", as_pattern(self.pattern))
        if isinstance(self.max_samples, bool) or not isinstance(self.max_samples, int) or self.max_samples < 1:
            raise BrainsurgeonError(f"max_samples must be a whole number of at least 1, got {self.max_samples!r}")
        if not isinstance(self.damping, int | float) or not self.damping > 0:
            raise BrainsurgeonError(f"damping must be positive (0.01 of the mean diagonal), got {self.damping!r}")
        if self.costs not in ("loss", "none"):
            raise BrainsurgeonError(f'costs must be "loss" or "none", got {self.costs!r}')

    def shares(self, shares: list[Share], sparsity: float, layers: Sequence[Layer]) -> list[Share]:
        """Return what is to go of which layers; n:m fixes it for each, blocks round counts up."""
        return pattern_shares(self.pattern, shares, sparsity, layers)

    def run(self, surgery: Surgery, task: Task) -> Outcome:
        """Find the parts of the forward pass, share the sparsity out, and prune part by part."""
        layers = linear_maps(task.model, surgery.weights.names)
        if not layers:
            raise BrainsurgeonError(
                "layer-wise pruning needs linear layers or convolutions, and none of the weights is of one: take "
                'another method, such as "cbs" or "mp"'
            )
        for layer in layers:
            check_divides(self.pattern, layer)
        batches = self._batches(surgery, task.seed)
        with evaluated(task.model), without_cache(task.model):
            return self._run(surgery, task, BatchLoss(task.model, surgery.loss), layers, batches)

    def _run(
        self, surgery: Surgery, task: Task, loss: BatchLoss, layers: list[LinearMap], batches: list[Batch]
    ) -> Outcome:
        probe = cut(batches[0], slice(1))
        home = _home(loss.model, surgery.device)
        with passing(loss.model, home):
            check_loss(loss, map_tensors(lambda t: t.to(home), probe))
            check_suspects(loss, batches, home)
        check_ranks(loss.model, batches)
        notes = [] if task.samples else self._coupled(surgery, loss, batches[0], home)
        chain, places = self._chain(surgery.loss, loss, probe, home, layers, notes)
        if chain.names and (failed := surgery.footprint_of(self).chain.failed):
            notes.append(f"the memory of a block could not be measured, so the whole model's was foretold: {failed}")

        def call(batch: Batch) -> Tensor:
            return loss(map_tensors(lambda t: t.to(surgery.device), batch))

        def stream(some: list[Batch]) -> Stream:
            return Stream(loss.model, call, some, layers, chain, surgery.device, places)

        reported = _one_by_one(batches, REPORTED, surgery.loss)
        with task.clock.measure("costs"):
            costs, before = row_costs(self.costs, surgery, loss, stream(reported))
        if before is None:
            with task.clock.measure("report"):
                before = streamed_loss(stream(reported))
        run = LayerRun(self.solver, self.pattern, self.damping, costs, task.notify, task.clock)
        own = own_share(batches)
        tried = tried_for(task.shares)
        names = {layer.name for layer in layers}
        counts, others = shared_counts(
            task.shares, names, lambda: run.curves(stream(_for_curves(batches)), tried), self.pattern.area
        )
        masks = run.prune(stream(own), counts, *_store(task.store))
        notes += gather_words(run.notes)
        if self.pattern.area > 1:
            notes.append(
                f"whole blocks of {self.pattern.area} weights go, so counts are rounded up: {task.total} in all"
            )
        unseen = {name: count for name, count in counts.items() if name not in masks}
        reason = "not reached in time" if run.late else "not called for the samples"
        if others:
            notes.append(f"no plain linear map, so pruned by magnitude and without a pattern: {', '.join(others)}")
            masks.update(by_magnitude(loss.model, others))
        if unseen:
            notes.append(f"{reason}, so pruned by magnitude: {', '.join(unseen)}")
            left = [layer for layer in layers if layer.name in unseen]
            masks.update(maps_by_magnitude(loss.model, left, unseen, self.pattern))

        def measure(model: nn.Module) -> float:
            with evaluated(model), without_cache(model):
                return streamed_loss(stream(reported))

        return Outcome(
            masks,
            None,
            loss_before=before,
            seconds=task.clock.seconds,
            record={
                "calibration_samples": sum(map(batch_size, batches)),
                "parts": len(chain.names),
                "errors": run.errors,
                "without_pattern": sorted(others),
            },
            notes=tuple(notes) if is_first() else (),
            measure=measure,
        )

    def _coupled(self, surgery: Surgery, loss: BatchLoss, batch: Batch, home: torch.device) -> list[str]:
        """Tell a loss that couples samples; sequences of tokens are spared the passes, which are long."""
        if self.costs == "none" or is_tokens(batch) or held_in(loss.model) or isinstance(surgery.loss, Match):
            return []
        return list(check_separate(loss, map_tensors(lambda t: t.to(home), batch), group=0))

    def _chain(
        self,
        kind: LossLike,
        loss: BatchLoss,
        probe: Batch,
        home: torch.device,
        layers: list[LinearMap],
        notes: list[str],
    ) -> tuple[Chain, int | None]:
        """Return the chain of modules that the forward pass is taken apart into; empty where there is none.

        With it, how many places of a sequence go through what is behind it at once.
        """

        def call(batch: Batch) -> Tensor:
            return loss(map_tensors(lambda t: t.to(home), batch))

        with passing(loss.model, home):
            places = places_at_once(kind, loss.model, map_tensors(lambda t: t.to(home), probe))

        def find(deepest: int | None) -> Chain:
            with passing(loss.model, home):
                return find_chain(loss.model, lambda: call(probe), [layer.name for layer in layers], deepest)

        def agrees(chain: Chain) -> bool:
            nonlocal places
            for some in dict.fromkeys([places, None]):
                agree = parts_agree(Stream(loss.model, call, [probe], layers, chain, home, some))
                if bool(broadcast(torch.tensor(agree), 0)):
                    places = some
                    return True
            return False

        chain, tried = finest_chain(find, agrees)
        if not chain.names and held_in(loss.model):
            raise BrainsurgeonError(
                "no list of blocks was found that the forward pass goes through one after the other, so the model "
                f"cannot be brought into memory block by block: {LOADED_WHOLE}"
            )
        if tried and not chain.names:
            notes.append("the forward pass is no chain of modules, so each layer takes passes of the whole model")
            return Chain(), None
        return chain, places

    def _batches(self, surgery: Surgery, seed: int) -> list[Batch]:
        if surgery.data is None:
            raise BrainsurgeonError(f"method {self.name!r} needs calibration samples: give data (only `mp` needs none)")
        generator = torch.Generator().manual_seed(seed)
        stream = SampleStream(surgery.data, generator, torch.device("cpu"), keep=0)
        read = list(stream.take(self.max_samples))
        if not read:
            raise BrainsurgeonError("the data is empty: there is no sample to calibrate on")
        tokens = is_tokens(read[0])
        share = -(-sum(map(batch_size, read)) // world_size())  # every rank gets some
        return list(regroup(read, min(TOKENS if tokens else IMAGES, share)))


def _home(model: nn.Module, device: torch.device) -> torch.device:
    """Return where whole passes are run: where the model is, or where the work is if that is no one place."""
    homes = {parameter.device for parameter in model.parameters()}
    return device if held_in(model) or len(homes) > 1 else homes.pop()


def _one_by_one(batches: list[Batch], count: int, loss: LossLike) -> list[Batch]:
    """Return this rank's share of the first samples, sequences of tokens one by one: the scores of all are large.

    A sequence that is all padding has no loss, and is left out.
    """
    tokens = is_tokens(batches[0])
    some = list(first(batches, max(count, world_size())))
    each = max(1, sum(map(batch_size, some)) // world_size())  # every rank gets some
    found = list(regroup(some, 1 if tokens else min(IMAGES, each)))
    return own_share([batch for batch in found if has_targets(batch, loss)] or found)


def _for_curves(batches: list[Batch]) -> list[Batch]:
    """Return this rank's share of what each layer's error at a few sparsities is found on: it needs fewer samples."""
    total, size = sum(map(batch_size, batches)), TOKENS if is_tokens(batches[0]) else IMAGES
    size = min(size, total)  # of a batch where there are no other ranks: the samples are the same for any number
    wanted = size * max(math.ceil(math.ceil(total / size) / CURVED), math.ceil(REPORTED / size))
    some = list(first(batches, wanted))
    if len(some) < world_size():  # every rank gets some
        some = list(regroup(some, max(1, sum(map(batch_size, some)) // world_size())))
    return own_share(some)


def _store(store: Any) -> tuple[Callable[[int], Any], Callable[[int, dict[str, Tensor]], None]]:
    if store is None:
        return (lambda number: None), (lambda number, tensors: None)
    return store.load_part, store.save_part

"""A model on the table: prepared once, pruned by any method at any sparsity; examinations are shared."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.distributed import is_first
from brainsurgeon.engine.budget import as_decimal, share_out
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event, silent
from brainsurgeon.events.clock import Clock, TimeUp
from brainsurgeon.events.loading import load
from brainsurgeon.events.progress import watch
from brainsurgeon.network.along_chain import AlongChain, along_chain
from brainsurgeon.network.buffers import become, give_memory
from brainsurgeon.network.checks import BadSampleError, first_line
from brainsurgeon.network.footprint import Footprint, footprint, probe, samples_in
from brainsurgeon.network.held import Held, largest_unit
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.network.loss import BatchLoss, LossLike
from brainsurgeon.network.match import bound_loss
from brainsurgeon.network.memory import check_device
from brainsurgeon.network.modes import for_examination, frozen, own_mode, without_cache
from brainsurgeon.network.names import name_matches, unwrapped
from brainsurgeon.network.repeatable import repeatable
from brainsurgeon.network.spread import holders, taken_over
from brainsurgeon.network.weights import Rule, find_weights
from brainsurgeon.pruning.finish import finish
from brainsurgeon.pruning.fitting import check_memory
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.methods import Method, describe, make_method
from brainsurgeon.pruning.one_shot import Examining, OneExamination, examine_once
from brainsurgeon.pruning.outcome import Outcome, Start, Task
from brainsurgeon.pruning.patterns import budget_in
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.samples.batches import Batch, as_seed, cut, is_one_batch, is_tokens, moved, replayable, tensors_of

LONG = 256
"""Tokens of a sequence that is long."""


class Surgery:
    """A model, its samples and its loss, prepared for pruning; `brainsurgeon.prune` says what each argument means.

    Methods that examine the model in the same way share one examination, so several of them, or several sparsities,
    cost the gradients once. What a call of `prune` gives does not depend on earlier calls. `settings` are those of
    every method that will be asked for.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any = None,
        loss: LossLike = "cross_entropy",
        *,
        include: Rule = None,
        exclude: Rule = None,
        seed: int = 0,
        device: str | torch.device | None = None,
        progress: bool | None = None,
        callback: Callback | None = None,
        **settings: Any,
    ):
        self.original, self.seed, self.settings = unwrapped(model), as_seed(seed), settings
        self.include, self.exclude = include, exclude
        self.weights = find_weights(self.original, include, exclude)
        self.held = holders(self.original)
        first = self.original.get_parameter(self.weights.names[0])
        self.device = check_device(device or self.held.get(first, first).device)
        self.data = self._given = replayable(data)
        with own_mode():
            self.loss = bound_loss(loss, self.data, self._dense, self.device)
        self._progress, self._callback = progress, callback or silent
        self._examined: dict[tuple[Examining, bool], OneExamination] = {}

    @cached_property
    def batch_loss(self) -> BatchLoss:
        """The loss on a copy of the dense model, on the device of the work."""
        return BatchLoss(self._dense(), self.loss)

    def _dense(self) -> nn.Module:
        return for_examination(copied(self.original), self.device)

    @cached_property
    def values(self) -> Tensor:
        """The trained weights w̄, as one vector."""
        return self.weights.flatten(self.batch_loss.model)

    @property
    def model_bytes(self) -> int:
        """The bytes of the model."""
        return sum(tensor.nbytes for tensor in self.original.state_dict().values() if isinstance(tensor, Tensor))

    def resident_bytes(self, method: Method) -> int:
        """Return the bytes of the model that are in the device's memory at once: all, or its largest part.

        That is so where it is held elsewhere, and where a method brings one block after the other to a GPU.
        """
        kinds = {parameter.device.type for parameter in self.original.parameters()}
        brought = isinstance(method, Layerwise) and self.device.type not in kinds
        if not self.held and not (brought and self._along_blocks.chain.blocks):
            return self.model_bytes
        with taken_over(self.original):
            return largest_unit(self.original, everything=not self.held)

    def footprint_of(self, method: Method) -> Footprint:
        """Return what one sample takes of memory: block by block where a method goes so, else of the whole model."""
        by_blocks = isinstance(method, Layerwise) and bool(self._along_blocks.chain.blocks)
        return self._along_blocks if by_blocks else self.footprint

    @cached_property
    def footprint(self) -> Footprint:
        """What one sample takes of memory, as far as it can be known without using samples up."""
        if self.data is None or self.held:
            return self._along_blocks
        try:
            batch = probe(self.data)
            if batch is not None:
                long = is_tokens(batch) and tensors_of(batch)[0][:1].numel() >= LONG  # of these one will do
                batch = moved(cut(batch, slice(1)) if long else batch, self.device)
                found = footprint(self.batch_loss, batch, self.data)
                return replace(found, chain=self._along_blocks.chain, on_gpu=self.device.type == "cuda")
        except Exception:  # a user's model, loss and data may raise anything: the run will say it in words
            return Footprint(samples=samples_in(self.data), resident=False)
        return Footprint(samples=samples_in(self.data), resident=False)

    @cached_property
    def _along_blocks(self) -> Footprint:
        """What one sample takes on its way block by block: no more of the model than a block is on the device."""
        if self.data is None:
            return Footprint()
        try:
            batch = probe(self.data)
            if batch is not None:
                one = cut(batch, slice(1))
                return Footprint(
                    sum(tensor.nbytes for tensor in tensors_of(one)),
                    samples=samples_in(self.data),
                    resident=is_one_batch(self.data),
                    linear=frozenset(layer.name for layer in linear_maps(self.original, self.weights.names)),
                    tokens=is_tokens(one),
                    chain=self._along_chain(one),
                )
        except Exception:  # a user's data may raise anything: the run will say it in words
            return Footprint(samples=samples_in(self.data), resident=False)
        return Footprint(samples=samples_in(self.data), resident=False)

    def _along_chain(self, one: Batch) -> AlongChain:
        """Measure one sample on its way block by block; beside another device than the CPU its states take nothing."""
        model = self.original
        try:
            with taken_over(model), own_mode(), frozen(model):
                loss = BatchLoss(model, self.loss)
                found = along_chain(loss, moved(one, self.device), self.weights.names, self.device, self.loss)
        except Exception as error:  # another network's code, given other tensors than its own: it is run as a whole
            return AlongChain(failed=f"{type(error).__name__}: {first_line(error)}")
        return found if self.device.type == "cpu" else replace(found, hidden=0)

    @own_mode()
    def examined(self, settings: Examining, curvature: bool, notify: Callback = silent) -> OneExamination:
        """Return the one-shot examination with these settings; it is made once."""
        for key in ((settings, True), (settings, curvature)):
            if key in self._examined:
                return self._examined[key]
        self._examined[settings, curvature] = examine_once(self, settings, curvature, notify)
        return self._examined[settings, curvature]

    @own_mode()
    def prune(
        self,
        sparsity: float | None = None,
        method: str | Method | Sequence[Any] = "auto",
        *,
        budget: str | dict[str, float] = "global",
        in_place: bool = False,
        seed: int | None = None,
        store: Any = None,
        start: Start | None = None,
        found_rate: float | None = None,
        **settings: Any,
    ) -> PruningResult:
        """Prune by one method at one sparsity; see `brainsurgeon.prune`.

        A leg of a path has a `start`, and may have a learning rate that was found for all of them.
        """
        chosen = make_method(method, {**self.settings, **settings})
        shares = share_out(budget, sparsity, self.weights.parts, name_matches)
        total = sum(share.count for share in shares)
        said = ""
        if sparsity is None:
            sparsity = total / self.weights.size
            said = f"the budget comes to {total:,} of {self.weights.size:,} weights ({sparsity:.4f})"
        shares = chosen.shares(shares, sparsity, self.weights.layers)
        seed = self.seed if seed is None else as_seed(seed)
        self._check_held(chosen, in_place)
        model = self.original if in_place else copied(self.original)
        trace = list[Event]()
        told = (self._callback, self._progress) if is_first() else (silent, False)
        with watch(*told, trace) as notify:
            clock = Clock(self.device, notify, getattr(chosen, "max_seconds", None), store.spent if store else 0.0)
            task = Task(model, shares, seed, clock.notify, clock, store, start=start, rate=found_rate)
            with clock.running(), taken_over(model), without_cache(model), repeatable(self.device):
                outcome = self._outcome(chosen, task)
                with clock.unlimited():
                    return finish(
                        model,
                        self.weights,
                        outcome,
                        task.total,
                        self.loss,
                        self.device,
                        sparsity=as_decimal(sparsity),
                        method=chosen.name,
                        seconds=outcome.seconds,
                        settings=self._record(chosen, budget, seed) | outcome.record,
                        notes=tuple(dict.fromkeys([*filter(None, [said]), *outcome.notes])),
                        trace=tuple(trace),
                    )

    def _check_held(self, method: Method, in_place: bool) -> None:
        """Refuse what cannot be done with a model whose tensors are brought into memory part by part."""
        if self.held and not isinstance(method, Layerwise):
            raise BrainsurgeonError(
                f"the model's weights lie {_place(self.held)}, and method {method.name!r} needs all of them at once: "
                'take a layer-wise method ("layerwise", "wanda", "sparsegpt"), or load the model whole'
            )
        if self.held and not in_place:
            raise _uncopied(self.held)

    def _outcome(self, method: Method, task: Task) -> Outcome:
        """Run a method; one whose time is up before it has anything is answered by magnitude."""
        try:
            if method.uses_data and self.data is not None:
                load()
                sample = self.footprint_of(method)
                check_memory(method, self.weights, self.resident_bytes(method), self.device, sample)
            return method.run(self, task)
        except BadSampleError as error:
            raise error.located(self._given) from error
        except TimeUp:
            return self._by_magnitude(method, task)

    def _by_magnitude(self, method: Method, task: Task) -> Outcome:
        """Remove the smallest weights of the dense network, or of the one to go on from, whose gone ones stay gone."""
        values, note = self.values, "the smallest weights were removed"
        scores = values.abs()
        if task.start is not None:
            become(task.model, task.start.model)  # what is not pruned belongs to its weights
            values = self.weights.flatten(task.start.model).to(values)
            gone = torch.cat([task.start.masks[name].reshape(-1) for name in self.weights.names]).to(values.device)
            scores = values.abs().masked_fill(gone, -1.0)
            note = f"{note} from the network before"
        pruned = budget_in(getattr(method, "pattern", Pattern()), self, task.shares).lowest(scores)
        return Outcome(
            self.weights.unflatten(pruned),
            self.weights.unflatten(values.masked_fill(pruned, 0.0)),
            seconds=task.clock.seconds,
            notes=(f"time was up before the method had found anything: {note}",),
        )

    def _record(self, method: Method, budget: Any, seed: int) -> dict[str, Any]:
        """Return what was used: the method with all its settings, and what all methods have in common."""
        common = {"include": self.include, "exclude": self.exclude, "device": str(self.device), "loss": self.loss}
        shown = {name: value if isinstance(value, str | None) else repr(value) for name, value in common.items()}
        return {"method": describe(method), "budget": budget, "seed": seed, **shown}


def copied(model: nn.Module) -> nn.Module:
    """Return a deep copy, or say why there is none."""
    if held := holders(model):
        raise _uncopied(held)
    try:
        return give_memory(copy.deepcopy(model))
    except Exception as error:  # a module may hold anything
        raise BrainsurgeonError(
            f"the model cannot be copied ({type(error).__name__}: {error}): remove what keeps it from that (a lock, an "
            "open file, a generator, a tensor of a graph), which copy.deepcopy(model) must be able to do"
        ) from error


def _uncopied(held: Held) -> BrainsurgeonError:
    return BrainsurgeonError(
        f"the model's weights lie {_place(held)} and are not copied into memory: prune it in place "
        "(in_place=True, with a layer-wise method), or load the model whole"
    )


def _place(held: Held) -> str:
    return next(iter(held.values())).place

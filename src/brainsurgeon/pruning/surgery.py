"""A model on the table: prepared once, pruned by any method at any sparsity; examinations are shared."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from brainsurgeon.engine.budget import make_budget
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event, silent
from brainsurgeon.events.clock import Clock
from brainsurgeon.events.progress import watch
from brainsurgeon.network.loss import BatchLoss, LossLike
from brainsurgeon.network.memory import check_device
from brainsurgeon.network.weights import Rule, find_weights
from brainsurgeon.pruning.finish import finish
from brainsurgeon.pruning.methods import Method, describe, make_method
from brainsurgeon.pruning.one_shot import Examining, OneExamination, examine_once
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.staged.state import Store
from brainsurgeon.samples.batches import replayable


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
        self.original, self.loss, self.seed, self.settings = model, loss, seed, settings
        self.include, self.exclude = include, exclude
        self.weights = find_weights(model, include, exclude)
        self.device = check_device(device or model.get_parameter(self.weights.names[0]).device)
        self.data = replayable(data)
        self.batch_loss = BatchLoss(copied(model).to(self.device).eval().requires_grad_(False), loss)
        self.values = self.weights.flatten(self.batch_loss.model)
        self._progress, self._callback = progress, callback or silent
        self._examined: dict[tuple[Examining, bool], OneExamination] = {}

    def examined(self, settings: Examining, curvature: bool, notify: Callback = silent) -> OneExamination:
        """Return the one-shot examination with these settings; it is made once."""
        for key in ((settings, True), (settings, curvature)):
            if key in self._examined:
                return self._examined[key]
        self._examined[settings, curvature] = examine_once(self, settings, curvature, notify)
        return self._examined[settings, curvature]

    def prune(
        self,
        sparsity: float,
        method: str | Method | Sequence[Any] = "cbs",
        *,
        budget: str | dict[str, float] = "global",
        in_place: bool = False,
        seed: int | None = None,
        store: Store | None = None,
        **settings: Any,
    ) -> PruningResult:
        """Prune by one method at one sparsity; see `brainsurgeon.prune`."""
        chosen = make_method(method, {**self.settings, **settings})
        layers = [(layer.name, layer.offset, layer.size) for layer in self.weights.layers]
        counts = make_budget(budget, sparsity, layers, self.device)
        seed = self.seed if seed is None else seed
        trace, clock = list[Event](), Clock(self.device)
        with watch(self._callback, self._progress, trace) as notify:
            outcome = chosen.run(self, counts, seed=seed, notify=notify, clock=clock, store=store)
        model = self.original if in_place else copied(self.original)
        return finish(
            model,
            self.weights,
            outcome,
            counts.total,
            self.loss,
            self.device,
            sparsity=float(sparsity),
            method=chosen.name,
            seconds=outcome.seconds,
            settings=self._record(chosen, budget, seed) | outcome.record,
            notes=tuple(dict.fromkeys(outcome.notes)),
            trace=tuple(trace),
        )

    def _record(self, method: Method, budget: Any, seed: int) -> dict[str, Any]:
        """Return what was used: the method with all its settings, and what all methods have in common."""
        common = {"include": self.include, "exclude": self.exclude, "device": str(self.device), "loss": self.loss}
        shown = {name: value if isinstance(value, str | None) else repr(value) for name, value in common.items()}
        return {"method": describe(method), "budget": budget, "seed": seed, **shown}


def copied(model: nn.Module) -> nn.Module:
    """Return a deep copy, or say why there is none."""
    try:
        return copy.deepcopy(model)
    except Exception as error:  # a module may hold anything
        raise BrainsurgeonError(
            f"the model cannot be copied ({type(error).__name__}: {error}): remove what keeps it from that (a lock, an "
            "open file, a generator, a tensor of a graph), which copy.deepcopy(model) must be able to do"
        ) from error


def with_notes(result: PruningResult, notes: tuple[str, ...]) -> PruningResult:
    """Return the result with more notes."""
    return dataclasses.replace(result, notes=tuple(dict.fromkeys(result.notes + notes)))

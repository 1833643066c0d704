"""The layers of a network one after the other: moments, solve, write, go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from brainsurgeon.engine.layer.baselines import wanda_scores
from brainsurgeon.engine.layer.least_squares import least_squares, objective
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.layer.solve import LayerProblem
from brainsurgeon.events import Callback, Event
from brainsurgeon.events.clock import Clock
from brainsurgeon.network.inputs import Moments
from brainsurgeon.network.linear_maps import LinearMap
from brainsurgeon.network.parts import Part
from brainsurgeon.network.streaming import Stream
from brainsurgeon.pruning.layerwise.allocate import ErrorCurve
from brainsurgeon.pruning.layerwise.solvers import LayerSolver

TRIED = (0.3, 0.5, 0.7, 0.85, 0.95)
"""Sparsities at which a layer's error is found for the allocation."""


@dataclass
class LayerRun:
    """What the layers share: how each is solved, the damping, and the costs of their rows (None: all alike)."""

    solver: LayerSolver
    pattern: Pattern
    damping: float
    costs: dict[str, Tensor]
    notify: Callback
    clock: Clock
    notes: list[str] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)

    def prune(
        self,
        stream: Stream,
        counts: dict[str, int],
        load: Callable[[int], dict[str, Tensor] | None],
        save: Callable[[int, dict[str, Tensor]], None],
    ) -> dict[str, Tensor]:
        """Prune every layer in the order of the forward pass; return the masks. A stored part is not done again."""
        masks: dict[str, Tensor] = {}
        done = self._restore(stream, load, masks)
        finished = len(masks)
        with closing(stream.parts(skip=done)) as parts:  # whatever happens, the model is put together again
            for number, part in enumerate(parts, done):
                for group in part.groups:
                    moments = self._moments(part, group)
                    for layer in group:
                        masks[layer.name] = self._solve(layer, moments[layer.name], counts[layer.name])
                        finished += 1
                        self.notify(Event("layers", finished, len(counts), {"error": self.errors[layer.name]}))
                save(number, self._state(part, masks))
        return masks

    def curves(self, stream: Stream) -> list[ErrorCurve]:
        """Return each layer's error at a few sparsities, from a cheap mask and least squares on it; nothing changes."""
        found: list[ErrorCurve] = []
        with closing(stream.parts()) as parts:
            for part in parts:
                for group in part.groups:
                    moments = self._moments(part, group)
                    for layer in group:
                        with self.clock.measure("allocation"):
                            found.append(self._curve(self._problem(layer, moments[layer.name], 0), layer.name))
                        self.notify(Event("allocation", len(found), len(stream.layers)))
        return found

    def _restore(
        self, stream: Stream, load: Callable[[int], dict[str, Tensor] | None], masks: dict[str, Tensor]
    ) -> int:
        """Write the stored parts into the model; return how many there are."""
        layers = {layer.name: layer for layer in stream.layers}
        number = 0
        while number < stream.total and (stored := load(number)) is not None:
            for key, value in stored.items():
                kind, _, name = key.partition("/")
                if kind == "weight":
                    layers[name].weight.data.copy_(value)
                elif kind == "pruned":
                    masks[name] = value.to("cpu")
                else:
                    self.errors[name] = float(value)
            number += 1
        return number

    def _state(self, part: Part, masks: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what a run that goes on after a part must know of it; a kept weight may be zero too."""
        done = [layer for layer in part.layers if layer.name in masks]
        return (
            {f"weight/{layer.name}": layer.weight.detach().cpu().clone() for layer in done}
            | {f"pruned/{layer.name}": masks[layer.name] for layer in done}
            | {f"error/{la.name}": torch.tensor(self.errors[la.name], dtype=torch.float64) for la in done}
        )

    def _moments(self, part: Part, group: Sequence[LinearMap]) -> dict[str, Moments]:
        with self.clock.measure("moments"):
            return part.moments(group)

    def _problem(self, layer: LinearMap, moments: Moments, count: int) -> LayerProblem:
        matrix = moments.matrix.clone()
        diagonal = matrix.diagonal(dim1=1, dim2=2)
        level = float(diagonal.mean())
        diagonal.add_(moments.damped(self.damping) * (level if level > 0 else 1.0))
        rows = layer.rows(layer.weight.detach())
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        costs = self.costs.get(layer.name)
        scales = None
        if costs is not None:
            # Half a row's own, half the layer's: few samples tell little of a single row.
            scales = (0.5 * costs + 0.5 * costs.mean()).to(rows.device).view(rows.shape[:-1])
        if rows.shape[0] == 1:  # no groups: plain matrices
            rows, matrix, scales = rows[0], matrix[0], None if scales is None else scales[0]
        return LayerProblem(rows, matrix, count, self.pattern, scales)

    def _solve(self, layer: LinearMap, moments: Moments, count: int) -> Tensor:
        """Prune one layer in the model, and return its mask in the parameter's shape."""
        problem = self._problem(layer, moments, count)
        with self.clock.measure("layers"):
            found = self.solver(problem)
        self.errors[layer.name] = found.error
        self.notes += [f"{layer.name}: {note}" for note in found.notes]
        lead = (-1, *found.pruned.shape[-2:])
        mask = layer.stored(found.pruned.reshape(lead))
        new = layer.stored(found.weights.reshape(lead)).to(layer.weight.dtype)
        layer.weight.data.copy_(new.masked_fill(mask, 0.0))
        return mask.to("cpu")

    def _curve(self, problem: LayerProblem, name: str) -> ErrorCurve:
        size, errors = problem.weights.numel(), []
        scores = wanda_scores(problem.weights, problem.moments).square()
        if problem.scales is not None:
            scores = scores * problem.scales.unsqueeze(-1)
        free = replace(self.pattern, keep_of=None) if self.pattern.keep_of else self.pattern
        for sparsity in TRIED:
            pruned = free.prune_lowest(scores, free.count(sparsity, problem.weights.shape))
            weights, _ = least_squares(problem.weights, problem.moments, pruned, tolerance=1e-2, max_iterations=10)
            total = objective(weights, problem.weights, problem.moments, problem.scales).sum()
            errors.append(float(total))
        return ErrorCurve(name, size, TRIED, tuple(errors))

"""The layers of a network one after the other: moments, solve, write, go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from brainsurgeon.distributed import check_same, is_first, rank, sum_over_ranks, world_size
from brainsurgeon.engine.budget import Share
from brainsurgeon.engine.layer.baselines import wanda_scores
from brainsurgeon.engine.layer.least_squares import refit
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.layer.solve import LayerProblem, LayerSolution
from brainsurgeon.engine.layer.standard import inverse, standard_form
from brainsurgeon.events import Callback, Event
from brainsurgeon.events.clock import Clock, TimeUp
from brainsurgeon.network.held import held_in, writing
from brainsurgeon.network.inputs import Moments
from brainsurgeon.network.linear_maps import LinearMap
from brainsurgeon.network.packed import PackedMasks
from brainsurgeon.network.parts import Part
from brainsurgeon.network.streaming import Stream
from brainsurgeon.pruning.layerwise.allocate import ErrorCurve
from brainsurgeon.pruning.layerwise.ranks import agreed_groups, owners, solve_group
from brainsurgeon.pruning.layerwise.solvers import LayerSolver
from brainsurgeon.pruning.ranks import check_time

TRIED, HIGH = (0.3, 0.5, 0.7, 0.85, 0.95), 0.99
"""Sparsities at which a layer's error is found for the allocation, and one more where much is to go."""


def tried_for(shares: Sequence[Share]) -> tuple[float, ...]:
    """Return the sparsities at which errors are found for budgets: as high as any of them asks for."""
    asked = [share.count / sum(size for _, _, size in share.layers) for share in shares if share.count]
    return (*TRIED, HIGH) if max(asked, default=0.0) > TRIED[-2] else TRIED


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
    late: bool = False
    """Whether time was up before the last layer."""

    def prune(
        self,
        stream: Stream,
        counts: dict[str, int],
        load: Callable[[int], dict[str, Tensor] | None],
        save: Callable[[int, dict[str, Tensor]], None],
    ) -> MutableMapping[str, Tensor]:
        """Prune every layer in the order of the forward pass; return the masks. A stored part is not done again."""
        masks: MutableMapping[str, Tensor] = PackedMasks() if held_in(stream.model) else {}
        done = self._restore(stream, load, masks)
        finished = len(masks)
        # Whatever happens, the model is put together again.
        with self._in_time(), closing(stream.parts(skip=done)) as parts:
            for number, part in enumerate(parts, done):
                for group in agreed_groups(stream.layers, part.groups):
                    check_time(self.clock)
                    for layer, found in self._solve(part, group, counts):
                        masks[layer.name] = self._write(layer, found)
                        finished += 1
                        self.notify(Event("layers", finished, len(counts), {"error": self.errors[layer.name]}))
                if is_first():
                    save(number, self._state(part, masks))
        return masks

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Leave the rest undone where time is up: the layers before it are pruned."""
        try:
            yield
        except TimeUp:
            self.late = True

    def curves(
        self,
        stream: Stream,
        sparsities: tuple[float, ...] = TRIED,
        keep: Callable[[LinearMap, int, Tensor], None] | None = None,
    ) -> list[ErrorCurve]:
        """Return each layer's error at a few sparsities, from a cheap mask and least squares on it; nothing changes.

        `keep` is given each layer's weights at the sparsity of a number.
        """
        sizes: dict[str, int] = {}
        errors: list[Tensor] = []
        loads = [0.0] * world_size()
        with closing(stream.parts()) as parts:
            for part in parts:
                check_time(self.clock)
                groups = agreed_groups(stream.layers, part.groups)
                with self.clock.measure("moments"):
                    moments = part.survey(groups)
                for group in groups:
                    owner = owners(group, loads)
                    for layer in group:
                        with self.clock.measure("allocation"):
                            errors.append(torch.zeros(len(sparsities), dtype=torch.float64))
                            if owner[layer.name] == rank():
                                errors[-1] = self._curve(layer, moments[layer.name], sparsities, keep)
                        sizes[layer.name] = layer.weight.numel()
                        self.notify(Event("allocation", len(errors), len(stream.layers)))
        table = sum_over_ranks(torch.stack(errors)).tolist() if errors else []
        return [ErrorCurve(name, sizes[name], sparsities, tuple(row)) for name, row in zip(sizes, table, strict=True)]

    def _restore(
        self, stream: Stream, load: Callable[[int], dict[str, Tensor] | None], masks: MutableMapping[str, Tensor]
    ) -> int:
        """Write the stored parts into the model; return how many there are."""
        number = 0
        while number < stream.total and (stored := load(number)) is not None:
            for key, value in stored.items():
                kind, _, name = key.partition("/")
                if kind == "weight":
                    with writing(stream.model, name) as weights:
                        weights.copy_(value)
                elif kind == "pruned":
                    masks[name] = value.to("cpu")
                else:
                    self.errors[name] = float(value)
            number += 1
        check_same(torch.tensor(number), "finished parts", "let all of them read the same folder")
        return number

    def _state(self, part: Part, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what a run that goes on after a part must know of it; a kept weight may be zero too."""
        done = [layer for layer in part.layers if layer.name in masks]
        return (
            {f"weight/{layer.name}": layer.weight.detach().cpu().clone() for layer in done}
            | {f"pruned/{layer.name}": masks[layer.name] for layer in done}
            | {f"error/{la.name}": torch.tensor(self.errors[la.name], dtype=torch.float64) for la in done}
        )

    def _problem(self, layer: LinearMap, moments: Moments, count: int) -> LayerProblem:
        matrix = moments.matrix.clone()
        diagonal = matrix.diagonal(dim1=1, dim2=2)
        squares = diagonal.clone()
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
            rows, matrix, squares, scales = rows[0], matrix[0], squares[0], None if scales is None else scales[0]
        return LayerProblem(rows, matrix, count, self.pattern, scales, squares=squares)

    def _solve(
        self, part: Part, group: Sequence[LinearMap], counts: dict[str, int]
    ) -> Iterator[tuple[LinearMap, LayerSolution]]:
        with self.clock.measure("moments"):
            moments = part.moments(group)

        def problem_of(layer: LinearMap) -> LayerProblem:
            return self._problem(layer, moments[layer.name], counts[layer.name])

        solutions = solve_group(self.solver, self.pattern, group, problem_of)
        for layer in group:
            with self.clock.measure("layers"):
                found = next(solutions)
            yield layer, found

    def _write(self, layer: LinearMap, found: LayerSolution) -> Tensor:
        """Write one layer into the model, and return its mask in the parameter's shape."""
        self.errors[layer.name] = found.error
        self.notes += [f"{layer.name}: {note}" for note in found.notes]
        lead = (-1, *found.pruned.shape[-2:])
        mask = layer.stored(found.pruned.reshape(lead))
        new = layer.stored(found.weights.reshape(lead)).to(layer.weight.dtype)
        layer.assign(new.masked_fill(mask, 0.0))
        return mask.to("cpu")

    def _curve(
        self,
        layer: LinearMap,
        moments: Moments,
        sparsities: tuple[float, ...],
        keep: Callable[[LinearMap, int, Tensor], None] | None,
    ) -> Tensor:
        problem, errors = self._problem(layer, moments, 0), []
        scores = wanda_scores(problem.weights, problem.moments).square()
        if problem.scales is not None:
            scores = scores * problem.scales.unsqueeze(-1)
        free = replace(self.pattern, keep_of=None) if self.pattern.keep_of else self.pattern
        unit = standard_form(problem.weights, problem.moments)
        inverted, start = inverse(unit.moments)[0], None
        for number, sparsity in enumerate(sparsities):
            pruned = free.prune_lowest(scores, free.count(sparsity, problem.weights.shape))
            start = refit(unit, pruned, inverted, start, tolerance=1e-2, max_iterations=10).distance
            values = unit.objective(start).double()
            errors.append((values if problem.scales is None else values * problem.scales).sum().cpu())
            if keep is not None:
                new = unit.weights_of(start, problem.weights).masked_fill(pruned, 0.0)
                keep(layer, number, layer.stored(new.reshape(-1, *new.shape[-2:])).to(layer.weight.dtype))
        return torch.stack(errors)

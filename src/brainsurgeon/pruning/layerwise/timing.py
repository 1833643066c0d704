"""How long a layer-wise run will take on this device: one batch through the parts that differ, and small layers solved.

All work of such a run is in proportion to something that is known: passes and moments to the samples, solutions to the
layers' rows and to the square and the cube of their inputs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch

from brainsurgeon.engine.budget import Share
from brainsurgeon.engine.layer.patterns import Pattern
from brainsurgeon.engine.layer.solve import LayerProblem
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import silent
from brainsurgeon.events.clock import Clock
from brainsurgeon.network.agreement import parts_agree
from brainsurgeon.network.footprint import samples_in
from brainsurgeon.network.held import held_in, passing
from brainsurgeon.network.inputs import Moments
from brainsurgeon.network.linear_maps import LinearMap, linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import evaluated, own_mode, without_cache
from brainsurgeon.network.partition import Chain, find_chain, finest_chain
from brainsurgeon.network.parts import Part
from brainsurgeon.network.spread import taken_over
from brainsurgeon.network.streaming import Stream
from brainsurgeon.pruning.layerwise.method import CURVED, IMAGES, REPORTED, TOKENS, Layerwise
from brainsurgeon.pruning.layerwise.run import LayerRun, tried_for
from brainsurgeon.samples.batches import (
    Batch,
    SampleStream,
    batch_size,
    cut,
    is_tokens,
    map_tensors,
    regroup,
)

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

ROWS, INPUTS = 96, 512
"""The largest layer that is solved to see how long it takes; larger ones follow from it."""
BACKWARD = 4.0
"""A pass there, and one more with its way back, in passes there."""
READS = 5
"""How often a run reads weights that lie elsewhere."""

Shape = tuple[int, int, int]


@dataclass
class _Passes:
    """Seconds of one batch: through each part once, with the moments of its groups, and with those of all at once."""

    forward: float = 0.0
    moments: float = 0.0
    survey: float = 0.0
    known: dict[tuple[Shape, ...], tuple[float, float, float]] = field(default_factory=dict)

    def add(self, key: tuple[Shape, ...], times: int = 1) -> None:
        forward, moments, survey = self.known[key]
        self.forward += times * forward
        self.moments += times * moments
        self.survey += times * survey


@own_mode()
def seconds_of(surgery: Surgery, method: Layerwise, shares: list[Share]) -> dict[str, float]:
    """Return the seconds of each step of a run on the surgery's device, by the names that a result has for them."""
    model = surgery.original  # its blocks are brought to the device one by one
    loss = BatchLoss(model, surgery.loss)
    with taken_over(model), evaluated(model), without_cache(model), torch.no_grad():
        batch = _batch(surgery)
        layers = linear_maps(model, surgery.weights.names)
        stream = Stream(model, loss, [batch], layers, _chain(surgery, loss, batch, layers), surgery.device)
        passes = _passes(stream)
        reading = _reading(surgery) if held_in(model) else 0.0
    size = batch_size(batch)
    samples = min(float(method.max_samples), samples_in(surgery.data))
    reported = min(samples, REPORTED) / size
    shapes = Counter(map(_shape, layers))
    found = {
        "costs": reported * passes.forward * (BACKWARD if method.costs == "loss" else 1.0),
        "moments": samples / size * passes.moments,
        "layers": _solutions(surgery, shapes, method.solver, method.pattern),
        "outputs": samples / size * passes.forward,
        "report": reported * passes.forward,
        "reading": READS * reading,
    }
    if any(len(share.layers) > 1 for share in shares):
        found["moments"] += max(samples / CURVED, min(samples, REPORTED)) / size * passes.survey
        found["allocation"] = _solutions(surgery, shapes, _curve(method, tried_for(shares)), Pattern())
    return {name: seconds for name, seconds in found.items() if seconds}


def _batch(surgery: Surgery) -> Batch:
    """Return a batch as the run will have them, on the device."""
    generator = torch.Generator().manual_seed(surgery.seed)
    read = list(SampleStream(surgery.data, generator, torch.device("cpu"), keep=0).take(IMAGES))
    tokens = is_tokens(read[0])
    batch = next(regroup(read, IMAGES))
    some: Batch = cut(batch, slice(TOKENS // 4)) if tokens else batch  # sequences are long
    moved: Batch = map_tensors(lambda tensor: tensor.to(surgery.device), some)
    return moved


def _chain(surgery: Surgery, loss: BatchLoss, batch: Batch, layers: list[LinearMap]) -> Chain:
    probe = cut(batch, slice(1))

    def find(deepest: int | None) -> Chain:
        with passing(loss.model, surgery.device):
            return find_chain(loss.model, lambda: loss(probe), [layer.name for layer in layers], deepest)

    return finest_chain(
        find, lambda chain: parts_agree(Stream(loss.model, loss, [probe], layers, chain, surgery.device))
    )[0]


def _passes(stream: Stream) -> _Passes:
    """Go through the parts; of blocks of the same shapes the first is timed, and stands for all."""
    found = _Passes()
    blocks = [
        _key([la for la in stream.layers if stream.chain.part_of(la.name) == k]) for k in range(len(stream.chain.names))
    ]
    left = Counter(blocks)
    with closing(stream.parts()) as parts:
        for part in parts:
            key = _key(part.layers)
            if key not in found.known:
                found.known[key] = _timed_part(part, stream.device)
            if part.name not in stream.chain.names:
                found.add(key)
                continue
            if left.pop(key, 0):
                found.add(key, blocks.count(key))
            if not left and not stream.outside(head=False):
                break
    return found


def _timed_part(part: Part, device: torch.device) -> tuple[float, float, float]:
    forward = _timed(partial(part.run, 0), device)
    moments = sum(_timed(partial(part.moments, group), device) for group in part.groups)
    survey = _timed(partial(part.survey, part.groups), device, again=False)  # it moves the hidden states on
    return forward, moments, survey


def _solutions(
    surgery: Surgery, shapes: Counter[Shape], solve: Callable[[LayerProblem], object], pattern: Pattern
) -> float:
    """Return the seconds of solving layers of these shapes, from a small one of each number of inputs.

    A layer of R rows and m inputs takes a m³ + b R m²; a and b are found with few rows and with many.
    """
    total = 0.0
    for inputs in {m for _, _, m in shapes}:
        small = min(inputs, INPUTS)
        few, many = ROWS // 4, ROWS
        problems = [_problem(surgery, rows, small, pattern) for rows in (few, many)]
        times = [_timed(partial(solve, problem), surgery.device) for problem in problems]
        each = max(0.0, times[1] - times[0]) / (many - few)
        fixed = max(0.0, times[0] - few * each)
        larger = inputs / small
        for (groups, rows, m), count in shapes.items():
            if m == inputs:
                total += count * groups * (fixed * larger**3 + each * rows * larger**2)
    return total


def _problem(surgery: Surgery, rows: int, inputs: int, pattern: Pattern) -> LayerProblem:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(rows, inputs, generator=generator).to(surgery.device)
    x = torch.randn(inputs, 2 * inputs, generator=generator).to(surgery.device)
    moments = (x @ x.T / (2 * inputs)).double() + 0.01 * torch.eye(inputs, device=surgery.device)
    try:
        count = pattern.count(0.5, weights.shape) if pattern.keep_of is None else _of_pattern(pattern, weights.numel())
        return LayerProblem(weights, moments, count, pattern)
    except BrainsurgeonError:  # a pattern that does not fit a layer of this size: any other takes as long
        return LayerProblem(weights, moments, weights.numel() // 2)


def _of_pattern(pattern: Pattern, size: int) -> int:
    assert pattern.keep_of is not None
    kept, of = pattern.keep_of
    return size // of * (of - kept)


def _curve(method: Layerwise, sparsities: tuple[float, ...]) -> Callable[[LayerProblem], object]:
    """Return what finds a layer's errors at a few sparsities."""
    run = LayerRun(method.solver, Pattern(), method.damping, {}, silent, Clock())

    def find(problem: LayerProblem) -> object:
        module = torch.nn.Linear(
            problem.weights.shape[1], problem.weights.shape[0], False, device=problem.weights.device
        )
        moments = Moments(problem.moments[None], problem.moments.shape[0])
        return run._curve(LinearMap("weight", module), moments, sparsities, None)

    return find


def _reading(surgery: Surgery) -> float:
    """Return the seconds of fetching all weights that lie elsewhere, from the first few of them."""
    held, read, start = list(held_in(surgery.original).items()), 0, time.perf_counter()
    for tensor, holder in held[:8]:
        holder.fetch()
        read += tensor.nbytes
    return (time.perf_counter() - start) * sum(tensor.nbytes for tensor, _ in held) / max(read, 1)


def _timed(work: Callable[[], object], device: torch.device, again: bool = True) -> float:
    """Return the seconds of something; what can be done `again` is timed the second time."""
    if again:
        work()
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _key(layers: list[LinearMap]) -> tuple[Shape, ...]:
    return tuple(map(_shape, layers))


def _shape(layer: LinearMap) -> Shape:
    groups, rows, inputs = layer.rows(layer.weight).shape
    return groups, rows, inputs

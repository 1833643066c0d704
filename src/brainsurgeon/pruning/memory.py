"""What a method needs of memory, part by part, beside the model and the data that are there already.

One estimate for the library, for `inspect` and for the checks of a run; `experiments/memory.py` holds it against the
peaks of processes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from brainsurgeon.engine.blocks import make_blocks
from brainsurgeon.engine.layer.least_squares import PIECE_BYTES
from brainsurgeon.engine.layer.swaps import CANDIDATES
from brainsurgeon.engine.selection import Magnitude, WoodFisher
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.footprint import Footprint
from brainsurgeon.network.gradients import PASSED, chunk_rows, rows_at_once
from brainsurgeon.network.streamed_costs import STATE_BYTES
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.pruning.auto.candidates import MOST_ENTRIES, ROWS, SMALL, is_sure
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.gradual.run import usual_batch
from brainsurgeon.pruning.judging import ENOUGH
from brainsurgeon.pruning.layerwise.method import IMAGES, REPORTED, TOKENS, Layerwise
from brainsurgeon.pruning.methods import Method, make_method
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.staged.method import Staged
from brainsurgeon.pruning.staged.pacing import Pacing
from brainsurgeon.pruning.staged.stage import COLUMNS_PER_ROW, HOPELESS, rows_for
from brainsurgeon.pruning.staged.state import State
from brainsurgeon.samples.held_out import MOST_READ, held_out_of

TORCH = 30 << 20
"""Of torch itself: code that is read in, threads, the buffers of its products."""
VECTORS, SCORED_VECTORS, PLAIN_VECTORS, STAGED_VECTORS = 60 * 9, 24 * 9, 4 * 9, 62 * 8
"""Bytes a weight for masks and vectors: the draws of a search above all; of scores; of magnitude; a stage's ends."""
SWAPPED = 10
"""Arrays of the swaps of a layer, each with so many copies of its rows as there are candidates."""
UNSUMMED = 0.7
"""The share of the steps of a recurrent layer whose gradients wait to be added up."""
NOT_RETURNED = 0.4
"""What a candidate has held and the allocator has not given back when the next one comes."""
RETURNED = 2
"""What the tail has kept, and the slopes at it, on the way back."""
BATCH = 32
"""Samples of a pass."""
TRAINED, RETURNING = 10, 0.8
"""Vectors of training, the optimizer's and the mask's; and what of the way forward is there at once on the way back."""
COMPARED = 4
"""Copies of a language model's outputs that are there at once where they are compared with a teacher's."""
RECORDED = 2
"""Passes that are held at once where a step is recorded: the record's, and those of the step it is compared with."""
COMPARED_VECTORS, WORKSPACES = 16, 64 << 20
"""Vectors of two states that are compared and of the record's own; what the libraries of a GPU keep for its streams."""
TAUGHT = 4.5
"""Copies of its features that a training step holds where a teacher has them too, on the way back among others."""


def memory_needs(
    method: Method, weights: PrunableWeights, model_bytes: int, sample: Footprint | None = None
) -> dict[str, int]:
    """Return the bytes that a method takes, part by part."""
    sample = sample or Footprint()
    if isinstance(method, Auto):
        return _auto(method, weights, model_bytes, sample)
    if isinstance(method, OneShot):
        parts = _one_shot(method, weights, sample)
    elif isinstance(method, Layerwise):
        parts = _layerwise(method, weights, sample)
    elif isinstance(method, Gradual):
        parts = {"training": TRAINED * 4 * weights.size, "samples": _kept(sample, method.max_samples)}
        few = _held_out(sample, method.max_samples) < ENOUGH
        # Of tokens the outputs are compared, which are as large as the vocabulary; of all else the features.
        taught = (COMPARED * sample.chain.tail if sample.tokens else TAUGHT * sample.featured) if few else 0
        records = sample.on_gpu and not sample.tokens  # texts have many lengths
        at_once = (method.batch_size or usual_batch(sample.tokens)) * (RECORDED if records else 1)
        parts["passes"] = int(at_once * (RETURNING * sample.passing + taught))
        if records:
            parts["recorded steps"] = COMPARED_VECTORS * 4 * weights.size + WORKSPACES
        if method.first_cut is not None:
            first = _layerwise(method.first_cut, weights, sample)
            parts = max(parts, first, key=lambda found: sum(found.values()))
    else:
        parts = _staged(method, weights, sample)
    copies = 2 if isinstance(method, OneShot | Layerwise) else 3
    return {"torch": TORCH, "copies of the model": copies * model_bytes} | {n: b for n, b in parts.items() if b}


def _auto(method: Auto, weights: PrunableWeights, model_bytes: int, sample: Footprint) -> dict[str, int]:
    """Return the needs of the largest candidate, and the copies that are kept beside it."""
    held = _held_out(sample, method.max_samples)
    sure = is_sure(method.gradients, held < ENOUGH, sample.tokens, weights.size)
    tried: list[Method] = [] if sure and method.max_seconds is None else [Layerwise()]
    if method.gradients:
        tried.append(Gradual(max_gradients=method.gradients, max_samples=method.max_samples))
    rows = MOST_ENTRIES // weights.size if method.max_seconds is not None else ROWS if weights.size <= SMALL else 0
    if min(rows, ROWS) >= 1 and (method.max_seconds is not None or not method.gradients):
        tried.append(make_method("cbs", {"num_gradients": int(min(rows, ROWS, max(1, sample.samples - held)))}))
    needs = sorted((memory_needs(one, weights, model_bytes, sample) for one in tried), key=lambda n: sum(n.values()))
    parts = needs[-1]
    parts["copies of the model"] += 2 * model_bytes
    if len(needs) > 1:
        parts["other candidates"] = int(NOT_RETURNED * sum(needs[-2].values()))
    samples = max(parts.pop("samples", 0), _kept(sample, method.max_samples))
    return parts | ({"samples": samples} if samples else {})


def _held_out(sample: Footprint, limit: int | None) -> int:
    """Return how many of the samples a method holds out."""
    return held_out_of(int(min(sample.samples, limit or MOST_READ)))


def _kept(sample: Footprint, limit: int | None) -> int:
    """Return the bytes of the samples that a method keeps for itself."""
    most = MOST_READ if limit is None and not sample.resident else limit or math.inf
    count = min(sample.samples, most)
    return int(count) * sample.sample if count < math.inf else 0


def _one_shot(method: OneShot, weights: PrunableWeights, sample: Footprint) -> dict[str, int]:
    parts = {"samples": _kept(sample, method.loss_samples), "passes": BATCH * sample.passing // 2}
    if not method.uses_curvature:
        return parts | {"masks and vectors": PLAIN_VECTORS * weights.size}
    rows = rows_of(method, weights, sample)
    vectors = SCORED_VECTORS if isinstance(method.selection, Magnitude | WoodFisher) else VECTORS
    parts["passes"] = max(parts["passes"], _of_rows(weights, rows, sample, method.gradient_batch))
    return parts | _fisher(weights, rows, method.dtype, method.blocks) | {"masks and vectors": vectors * weights.size}


def rows_of(method: OneShot | Staged, weights: PrunableWeights, sample: Footprint) -> int:
    """Return of how many gradients the curvature is made: never of more than the data hold.

    The exact Fisher matrix has several of each sample, and is taken for as large as it was asked to be.
    """
    if isinstance(method, OneShot) and method.fisher == "exact":
        return method.num_gradients
    if isinstance(method, OneShot):
        return int(min(method.num_gradients, (sample.samples or math.inf) // method.gradient_batch or 1))
    return min(rows_for(weights.size), _drawn(method, sample))


def _of_rows(weights: PrunableWeights, rows: int, sample: Footprint, group: int = 1) -> int:
    """Return what the passes hold for gradients that are taken at once; a recurrent layer has one for every step."""
    kind, kept = "cuda" if sample.on_gpu else "cpu", group * sample.passing
    at_once = min(rows, chunk_rows(weights.size, kind), rows_at_once(kept, kind))
    return int(at_once * (PASSED * kept + UNSUMMED * (sample.steps - 1) * 4 * weights.size))


def _layerwise(method: Layerwise, weights: PrunableWeights, sample: Footprint) -> dict[str, int]:
    solved = [layer for layer in weights.layers if sample.linear is None or layer.name in sample.linear]
    solved = solved or list(weights.layers)  # then the run is refused in words
    widest = max(math.prod(layer.shape[1:]) for layer in solved)
    largest = 4 * max(layer.size for layer in solved)
    return {
        "moments": 6 * 8 * widest**2,
        "one layer": 12 * largest + SWAPPED * min(CANDIDATES * largest, PIECE_BYTES),
        "samples": _kept(sample, method.max_samples),
        **_streamed(sample, method.max_samples),
    }


def _streamed(sample: Footprint, most: int) -> dict[str, int]:
    """Return the bytes of passes: of the whole network, or of one block with the hidden states that wait."""
    chain = sample.chain
    if not chain.blocks:
        return {"passes": IMAGES * sample.passing // 2}
    together, alone = (TOKENS, 1) if sample.tokens else (IMAGES, IMAGES)  # for moments, and on the way back
    waiting = min(STATE_BYTES, min(REPORTED, most) * chain.blocks * chain.hidden)
    return {
        "passes": max(together * chain.block, alone * max(chain.block, RETURNED * (chain.piece or chain.tail))),
        "hidden states": max(int(min(sample.samples, most)) * chain.hidden, waiting),
    }


def _staged(method: Staged, weights: PrunableWeights, sample: Footprint) -> dict[str, int]:
    parts = {"masks and vectors": STAGED_VECTORS * weights.size, "samples": _kept(sample, method.max_samples)}
    parts["passes"] = max(3 * BATCH * sample.passing, _of_rows(weights, BATCH, sample))
    rows = rows_of(method, weights, sample)
    if method.curvature != "gram" and (method.curvature == "fisher" or weights.size <= HOPELESS * rows):
        parts |= _fisher(weights, rows, method.dtype, method.blocks, COLUMNS_PER_ROW)
    if method.curvature != "fisher":
        parts["Gram matrices"] = 2 * 8 * sum(math.prod(layer.shape[1:]) ** 2 for layer in weights.layers)
    return parts


def _drawn(method: Staged, sample: Footprint) -> int:
    """Return how many samples the first stage examines."""
    kinds = 2 if method.curvature == "auto" else 1
    samples = int(min(0.8 * sample.samples or math.inf, method.max_gradients))
    try:
        pacing = Pacing(method.schedule, method.max_gradients, samples, kinds, 2)
        return max(1, pacing.share(replace(State.begin(torch.zeros(0), "gram"), number=1)))
    except BrainsurgeonError:  # too few gradients, which is said when the run starts
        return 1


def _fisher(
    weights: PrunableWeights, rows: int, dtype: torch.dtype, blocks: str | int, columns_per_row: int = 40
) -> dict[str, int]:
    parts = make_blocks(blocks, weights.layers, rows, columns_per_row)
    widest = max(block.stop - block.start for block in parts)
    return {"gradients": rows * weights.size * dtype.itemsize, "factor": 2 * 8 * min(rows, widest) ** 2}

"""What is checked before work starts: that it fits, and that a resumed run is still the run it was."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import torch

from ..batches import as_batches, tensors_of
from ..memory import check_device, check_memory
from ..recipe import Recipe
from ..surgery import Surgery
from ..target import Target
from ..weights import find_weights
from .folder import RunError, RunFolder
from .steps import digest

log = logging.getLogger(__name__)

CLOSE = 1e-4
"""Two examinations of the same model differ by less, whatever the order in which a GPU adds up."""
STEP_BYTES = 2 * (1 + 8)  # a weight: a mask and a change of the weights, for a selection and its rival
PROBED = 4  # batches of the sample loss


def check_fits(run: RunFolder, recipe: Recipe, target: Target, cells: int) -> None:
    """Refuse what memory or disk cannot hold."""
    settings = recipe.largest_examination()
    weights = find_weights(target.model, settings.include, settings.exclude)
    model = sum(tensor.nbytes for tensor in target.model.state_dict().values())
    steps = len(recipe.methods) * STEP_BYTES * weights.size
    run.check_disk(cells * (model + weights.size) + steps)
    device = check_device(settings.device or next(target.model.parameters()).device)
    if any(method.uses_curvature for method in recipe.make_methods().values()):
        check_memory(weights, model, settings, device, recipe.takes_gram)


def check_same_model(run: RunFolder, target: Target) -> None:
    """Hold a resumed run to the weights it was started with."""
    digests = [f"{name} {digest(tensor)}" for name, tensor in target.model.state_dict().items()]
    fingerprint = digest(torch.frombuffer(bytearray("\n".join(digests).encode()), dtype=torch.uint8))
    _check_same(run, "model", fingerprint, "the model has other weights")


def check_same_data(run: RunFolder, target: Target, seed: int) -> None:
    """Hold a resumed run to the first batch it was started with, where that can be looked at without using it up."""
    if isinstance(target.data, Iterator):
        return
    first = next(as_batches(target.data, torch.Generator().manual_seed(seed)), None)
    found = [] if first is None else [digest(tensor) for tensor in tensors_of(first)]
    _check_same(run, "data", found, "the data come in another order, or are other data,")


def _check_same(run: RunFolder, name: str, value: Any, complaint: str) -> None:
    known = run.facts().get(name)
    if known is None:
        run.note(**{name: value})
    elif known != value:
        raise RunError(
            f"{run.path} cannot go on: {complaint} than when it was started. Restore what it was started with, or "
            "start a new run"
        )


def check_same_examination(run: RunFolder, surgery: Surgery) -> tuple[str, ...]:
    """Hold a resumed run to its sample and gradients; return a note where only the last digits differ."""
    sample = surgery.sample_loss
    found = {"loss": sample.at(surgery.values).loss(min(PROBED, sample.num_batches))}
    if surgery.quadratic is not None:
        found["curvature"] = surgery.quadratic.cost_of_step(surgery.values)
    known = run.facts().get("examined")
    if known is None:
        run.note(examined=found)
    elif not all(math.isclose(known[key], value, rel_tol=CLOSE) for key, value in found.items()):
        raise RunError(
            f"{run.path} cannot go on: the data or the loss are other than when it was started ({known} then, {found} "
            "now). Does the function give the same samples in the same order each time?"
        )
    elif known != found:
        note = "resumed with gradients that differ in their last digits from those it was started with"
        log.warning(note)
        return (note,)
    return ()

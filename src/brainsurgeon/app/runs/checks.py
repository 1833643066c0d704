"""What is checked before work starts: that it fits, and that a resumed run is still the run it was."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.app.recipe import Recipe
from brainsurgeon.app.runs.folder import RunError, RunFolder
from brainsurgeon.app.target import Target
from brainsurgeon.network.held import held_in
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.fitting import check_memory
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.samples.batches import as_batches, is_one_batch, tensors_of

STATE_BYTES = 3 * 4
"""A weight takes so many bytes in the stored state of a staged run."""
CANDIDATES = 5
"""Outcomes that a run of `auto` keeps until it is done."""
PROBED = 64
"""Batches of the data that a resumed run is held to."""


def check_fits(run: RunFolder, recipe: Recipe, target: Target, cells: int) -> None:
    """Refuse what memory or disk cannot hold."""
    common = recipe.common(target.exclude)
    surgery = Surgery(target.model, target.data, target.loss, **common, progress=False)
    size, model = surgery.weights.size, surgery.model_bytes
    methods = recipe.make_methods().values()
    kept = CANDIDATES * (model + size) if any(isinstance(method, Auto) for method in methods) else 0
    if surgery.held:
        run.check_disk(model + size)  # the parts that a killed run goes on from; the copy is there already
    else:
        run.check_disk(cells * (model + size) + STATE_BYTES * size + kept)
    for method in methods:
        resident, sample = surgery.resident_bytes(method), surgery.footprint_of(method)
        check_memory(method, surgery.weights, resident, surgery.device, sample)


def digest(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).hexdigest()


def check_same_model(run: RunFolder, target: Target) -> None:
    """Hold a resumed run to the weights it was started with."""
    found = hashlib.sha256()
    held = held_in(target.model)
    for name, tensor in target.model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            continue  # extra state of a module's own, which may have any form
        value = held[tensor].fetch() if tensor in held else tensor
        found.update(f"{name} {digest(value)}\n".encode())
    _check_same(run, "model", found.hexdigest(), "the model has other weights")


def check_same_data(run: RunFolder, target: Target, seed: int) -> None:
    """Hold a resumed run to the data it was started with, where that can be done without using them up.

    Of tensors in memory all are looked at, else the first batches.
    """
    if target.data is None or isinstance(target.data, Iterator):
        return
    whole = is_one_batch(target.data)
    batches = [target.data] if whole else as_batches(target.data, torch.Generator().manual_seed(seed))
    found = hashlib.sha256()
    for _, batch in zip(range(PROBED), batches, strict=False):
        for tensor in tensors_of(batch):
            found.update(digest(tensor).encode())
    _check_same(run, "data", found.hexdigest(), "the data come in another order, or are other data,")


def _check_same(run: RunFolder, name: str, value: Any, complaint: str) -> None:
    known = run.facts().get(name)
    if known is None:
        run.note(**{name: value})
    elif known != value:
        raise RunError(
            f"{run.path} cannot go on: {complaint} than when it was started. Restore what it was started with, or "
            "start a new run"
        )

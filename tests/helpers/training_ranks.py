"""A program for each rank of a test: it prunes in several ways that train, and leaves masks and losses in a folder."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ranks import die, network, samples, saved_form
from safetensors.torch import save_file
from torch import nn

import brainsurgeon
from brainsurgeon import distributed
from brainsurgeon.pruning.auto.found import Found, first_found
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.layerwise.method import Layerwise

SHORT: dict[str, Any] = {"max_gradients": 480, "batch_size": 16, "learning_rate": 0.002}
WAYS: dict[str, Any] = {
    "few": Gradual(**SHORT),
    "uneven parts": Gradual(**SHORT | {"batch_size": 7}, distil=0.0),
    "many": Gradual(**SHORT | {"max_gradients": 1600}),
    "doubted": Gradual(**SHORT | {"max_gradients": 1600}, doubt=0.5),
    "first cut": Gradual(**SHORT, first_cut=Layerwise()),
    "a rate is found": Gradual(**SHORT | {"learning_rate": None, "max_gradients": 1600}),
    "auto": Auto(max_gradients=960),
}
"""What two ranks do as one does."""
APART: dict[str, Any] = {
    "norms": Gradual(**SHORT),
    "in time": Auto(max_seconds=2.0),
    "gradual in time": Gradual(max_seconds=1.0, max_gradients=10**7),
    "quick": Auto(effort="quick", max_samples=60),
    "no time": Auto(max_seconds=0.02),
}
"""What two ranks do alike, but not as one does."""


def normalised() -> nn.Module:
    """With batch statistics, in a layer of every rank's own."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 20), nn.BatchNorm1d(20), nn.Tanh(), nn.Linear(20, 6))


def pruned_in(way: str, **settings: Any) -> brainsurgeon.PruningResult:
    method = (WAYS | APART)[way]
    inputs, targets = samples(5200 if way == "many" else 1000)
    model = network() if way in WAYS else normalised()
    return brainsurgeon.prune(model, (inputs, targets), 0.6, method, **settings)


def prune_all(folder: Path) -> None:
    """Every way, with what was told on this rank."""
    for way in WAYS | APART:
        told: list[Any] = []
        result = pruned_in(way, callback=told.append)
        if way == "no time":
            (folder / f"{way}.{distributed.rank()}").write_text(str(result.pruned))
            continue
        buffers = {f"buffer/{name}": buffer.clone() for name, buffer in result.model.named_buffers()}
        noted = torch.tensor([len(told), len(result.notes)])
        save_file(saved_form(result) | buffers | {"told": noted}, folder / f"{way}.{distributed.rank()}")


def find_alone(folder: Path) -> None:
    """What the first rank found by itself goes to the second, which found nothing; and nothing where the first has."""
    own, model = distributed.rank(), normalised()
    masks = {"1.weight": torch.arange(960).view(20, 48) % 7 == 0}
    with torch.no_grad():
        model[1].weight += 1 - own
    found = first_found(Found(0.25, 7, masks, model) if own == 0 else None, model, masks)
    assert found is not None
    tensors = {"weight": found.model[1].weight.detach(), "mask": found.masks["1.weight"]}  # type: ignore[index]
    save_file(tensors | {"numbers": torch.tensor([found.loss, found.gradients])}, folder / f"found.{own}")
    assert first_found(found if own == 1 else None, model, masks) is None


def disagree(folder: Path) -> None:
    """Ranks that were given other samples; what each refuses is written down."""
    own = distributed.rank()
    inputs, targets = samples(200)
    for name, method in (("gradual", Gradual(**SHORT)), ("auto", Auto(max_gradients=100))):
        try:
            brainsurgeon.prune(network(), (inputs + own, targets), 0.5, method)
        except brainsurgeon.BrainsurgeonError as error:
            (folder / f"refused-{name}.{own}").write_text(str(error))


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.start(timeout=60.0)
    die_in_the_search = partial(die, method=WAYS["a rate is found"], call=40)
    for task in (prune_all, find_alone, disagree, die_in_the_search):
        task(Path(sys.argv[1]))
    os._exit(0)  # gloo may abort when it takes down a group that has lost a rank

"""How each network is pruned: its checkpoint, its data, and the settings that produced the paper's tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.checkpoint import load_checkpoint
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.models import build
from brainsurgeon.paper.reproduce.published import PUBLISHED

BASE = ("mp", "wf-s", "cbs-s", "wf", "cbs", "mp+cbs-u", "wf-s+cbs-u")
PAPER_SEARCH = ("cbs-s-published", "cbs-published", "algorithm1", "algorithm1+cbs-u")
ABLATION = ("rmp", "cbs@1")


@dataclass(frozen=True)
class Protocol:
    """One network: where it comes from and how it is pruned."""

    network: str
    checkpoint: str
    data: str
    settings: dict[str, Any]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    resample: bool = False
    methods: tuple[str, ...] = BASE + PAPER_SEARCH
    seeds: int = 5
    sparsities: tuple[float, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "sparsities", tuple(PUBLISHED[self.network]["mp"]))


PROTOCOLS = {
    protocol.network: protocol
    for protocol in (
        Protocol(
            "mlpnet",
            "mnist_25_epoch_93.97.ckpt",
            "mnist",
            {"num_gradients": 10_000, "blocks": "model", "damping": 1e-3},
            methods=BASE + PAPER_SEARCH + ABLATION,
        ),
        Protocol(
            "resnet20",
            "resnet20_cifar10.pth.tar",
            "cifar10",
            {"num_gradients": 1000, "blocks": "layer", "damping": 1e-5, "include": "layer*.conv?.weight"},
            mean=(0.5, 0.5, 0.5),
            std=(0.5, 0.5, 0.5),
        ),
        Protocol(
            "cifarnet",
            "cifarnet.safetensors",
            "cifar10",
            {"num_gradients": 1000, "blocks": "layer", "damping": 1e-5},
            methods=BASE + PAPER_SEARCH + ABLATION,
        ),
        Protocol(
            "mobilenet-0.75",
            "mobilenet_v1_0.75_224_imagenet.safetensors",
            "imagenet",
            {"num_gradients": 400, "gradient_batch": 16, "blocks": 10_000, "damping": 1e-5, "loss_samples": 1000},
            resample=True,
            seeds=1,
        ),
    )
}


def load_network(protocol: Protocol, folders: list[Path]) -> nn.Module:
    """Load the trained network from the first folder that has its checkpoint."""
    for folder in folders:
        path = folder / protocol.checkpoint
        if path.is_file():
            return load_checkpoint(build(protocol.network), path).eval()
    looked = ", ".join(str(folder) for folder in folders)
    raise BrainsurgeonError(
        f"the checkpoint {protocol.checkpoint} is in none of: {looked}; give its folder with --checkpoints, or train "
        f"the network (brainsurgeon train {protocol.network})"
    )


def load_images(protocol: Protocol, root: Path | None = None) -> ImageData:
    """Load the network's data, normalised as its checkpoint needs."""
    if protocol.data == "imagenet":
        from brainsurgeon.paper.datasets.imagenet import load_imagenet

        folder = Path(os.environ.get("BRAINSURGEON_IMAGENET", "imagenet"))
        return load_imagenet(folder / "calibration-1000.npz", folder / "validation-1000.npz")
    from brainsurgeon.paper.datasets import load

    data = load(protocol.data, root)
    return data if protocol.mean is None or protocol.std is None else data.normalized_by(protocol.mean, protocol.std)


def training_samples(protocol: Protocol, data: ImageData, seed: int) -> Any:
    """Return the training part as `prune` takes it; where images are few, batches drawn with replacement."""
    if not protocol.resample:
        return data.train()
    return _draws(data, torch.Generator().manual_seed(seed))


def _draws(data: ImageData, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of distinct images, each batch drawn anew from all."""
    while True:
        chosen = torch.randperm(len(data.train_targets), generator=generator)[:32]
        yield data.normalize(data.train_inputs[chosen]), data.train_targets[chosen]

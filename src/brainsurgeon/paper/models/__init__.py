"""The paper's networks: MLPNet, CIFARNet, the CIFAR ResNets and MobileNetV1."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.paper.models.cifarnet import CIFARNet
from brainsurgeon.paper.models.initialize import initialize
from brainsurgeon.paper.models.mlpnet import MLPNet
from brainsurgeon.paper.models.mobilenet import MobileNetV1
from brainsurgeon.paper.models.resnet import ResNet

__all__ = ["BUILDERS", "CIFARNet", "MLPNet", "MobileNetV1", "ResNet", "build", "initialize"]

BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "mlpnet": MLPNet,
    "cifarnet": CIFARNet,
    "resnet20": partial(ResNet, depth=20),
    "resnet32": partial(ResNet, depth=32),
    "resnet44": partial(ResNet, depth=44),
    "resnet56": partial(ResNet, depth=56),
    "mobilenet": MobileNetV1,
    "mobilenet-0.75": partial(MobileNetV1, width=0.75),
}


def build(name: str, generator: torch.Generator | None = None) -> nn.Module:
    """Build a network by name, freshly initialised.

    The weights are drawn from `generator` alone (a generator of seed 0 where none is given), so the same
    call gives the same network and the global random state is left as it was.
    """
    if name not in BUILDERS:
        raise BrainsurgeonError(f"Unknown network {name!r}. The known ones are: {', '.join(BUILDERS)}.")
    # PyTorch's constructors draw from the global state; what they draw is overwritten below.
    with torch.random.fork_rng(devices=[]):
        model = BUILDERS[name]()
    initialize(model, generator or torch.Generator().manual_seed(0))
    return model

"""Weight initialisation from an explicit generator."""

from typing import Literal

import torch
from torch import nn


def initialize(model: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights of a network anew: He's normal for ReLU layers, zeros for biases.

    Every layer but the last is followed by a ReLU; the last one, whose outputs are the logits, gets the
    gain of a linear layer. Batch normalisation starts as the identity.
    """
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    for layer in layers:
        gain: Literal["linear", "relu"] = "linear" if layer is layers[-1] else "relu"
        # Fan-in, since PyTorch counts the fan-out of a depthwise convolution as if its groups were one.
        nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity=gain, generator=generator)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()

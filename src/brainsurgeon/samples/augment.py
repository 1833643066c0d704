"""Random crops and flips of whole batches, as tensor operations with an explicit generator."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from brainsurgeon.samples.batches import Batch, sent

Augment = Callable[[Batch, torch.Generator], Batch]
"""Changes a training batch, drawing from a generator."""


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Shift every image of a batch by up to `padding` pixels each way, filling with zeros.

    This is padding on all sides and a random crop of the old size. On normalised images the filling is the
    mean colour.
    """
    number, _, height, width = images.shape
    padded = pad(images, (padding,) * 4)
    shift = torch.randint(0, 2 * padding + 1, (2, number, 1), generator=generator, device=generator.device)
    shift = sent(shift, images.device)
    rows = shift[0] + torch.arange(height, device=images.device)  # (number, height)
    columns = shift[1] + torch.arange(width, device=images.device)
    batch = torch.arange(number, device=images.device)
    picked = padded.permute(0, 2, 3, 1)[batch[:, None, None], rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2).contiguous()


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror every image of a batch left to right with probability one half."""
    coin = torch.rand(len(images), generator=generator, device=generator.device) < 0.5
    return torch.where(sent(coin, images.device).view(-1, 1, 1, 1), images.flip(-1), images)


def crop_and_flip(batch: Batch, generator: torch.Generator) -> Batch:
    """Shift and mirror the images of a batch (inputs, targets): an `augment` for pictures of objects."""
    images, *targets = batch
    padding = max(1, images.shape[-1] // 8)
    return (random_flip(random_crop(images, padding, generator), generator), *targets)

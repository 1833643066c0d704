"""Random crops, flips and warps of whole batches, as tensor operations with an explicit generator."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from brainsurgeon.samples.batches import Batch, sent

Augment = Callable[[Batch, torch.Generator], Batch]
"""Changes a training batch, drawing from a generator."""
SMALLEST = 8
"""Pixels of a side that make an array a picture."""


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


def random_warp(
    images: Tensor, generator: torch.Generator, turn: float = 10.0, zoom: float = 1.1, shift: float = 0.05
) -> Tensor:
    """Turn every image of a batch by up to `turn` degrees, zoom by up to `zoom`, shift by up to a share of its size.

    Pixels between pixels are interpolated, and those of the edges go on outside.
    """
    wide = images.to(torch.promote_types(images.dtype, torch.float32))  # half precision cannot tell pixels apart
    drawn = 2 * torch.rand(4, len(images), 1, 1, generator=generator, device=generator.device) - 1
    angle, size, across, down = sent(drawn, images.device).to(wide.dtype)
    angle, size = math.radians(turn) * angle, zoom**size
    along, aside = size * torch.cos(angle), size * torch.sin(angle)
    y, x = _places(wide.shape[2], wide).unsqueeze(1), _places(wide.shape[3], wide)
    tall = wide.shape[2] / wide.shape[3]  # both sides are 2 long here: a turn must weigh them as they are
    columns = along * x - aside * tall * y + 2 * shift * across
    rows = aside / tall * x + along * y + 2 * shift * down
    grid = torch.stack([columns, rows], -1)
    return grid_sample(wide, grid, padding_mode="border", align_corners=False).to(images.dtype)


def _places(length: int, like: Tensor) -> Tensor:
    """Return where the pixels of a row are, its ends being −1 and 1."""
    return (2 * torch.arange(length, device=like.device, dtype=like.dtype) + 1) / length - 1


def crop_and_flip(batch: Batch, generator: torch.Generator) -> Batch:
    """Shift and mirror the images of a batch (inputs, targets), or of inputs alone: for pictures of objects."""

    def changed(images: Tensor) -> Tensor:
        padding = max(1, images.shape[-1] // 8)
        return random_flip(random_crop(images, padding, generator), generator)

    return _with_images(batch, changed)


def warp(batch: Batch, generator: torch.Generator) -> Batch:
    """Turn, zoom and shift the images of a batch (inputs, targets), or of inputs alone, a little: for any pictures."""
    return _with_images(batch, lambda images: random_warp(images, generator))


def _with_images(batch: Batch, changed: Callable[[Tensor], Tensor]) -> Batch:
    if isinstance(batch, Tensor):
        return changed(batch)
    images, *targets = batch
    return (changed(images), *targets)


def has_pictures(batch: Batch) -> bool:
    """Say whether the inputs of a batch (inputs, targets), or of inputs alone, are grey or coloured images."""
    images = batch[0] if isinstance(batch, list | tuple) and batch else batch
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.is_floating_point():
        return False
    return images.shape[1] in (1, 3) and min(images.shape[2:]) >= SMALLEST

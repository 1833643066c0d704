"""Images in memory: what every data set of this package becomes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError


class DataError(BrainsurgeonError):
    """Data that is missing, damaged or not what was expected."""


def pillow() -> Any:
    """Import Pillow's Image module, which only the decoding of PNG and JPEG files needs."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise DataError("Decoding images needs Pillow: pip install 'brainsurgeon[data]'.") from error
    return Image


@dataclass(frozen=True)
class ImageData:
    """A data set of images and labels, training and test part, held as bytes.

    Inputs are uint8 of shape (number, channels, height, width), targets int64. They become floats only
    when asked for, as `(x / 255 − mean) / std` per channel.
    """

    name: str
    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            inputs, targets = getattr(self, f"{part}_inputs"), getattr(self, f"{part}_targets")
            if inputs.ndim != 4 or inputs.shape[1] != len(self.mean) or len(self.mean) != len(self.std):
                raise DataError(
                    f"Expected {part} images of shape (number, {len(self.mean)}, height, width), and a mean "
                    f"and standard deviation for each channel; got {tuple(inputs.shape)}."
                )
            if len(inputs) != len(targets):
                raise DataError(f"Expected {len(inputs)} {part} labels, one an image, got {len(targets)}.")

    def normalize(self, images: Tensor) -> Tensor:
        """Turn uint8 images into normalised float32 ones, on the device they are on."""
        mean = torch.tensor(self.mean, device=images.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(-1, 1, 1)
        return (images.float() / 255 - mean) / std

    def train(self) -> tuple[Tensor, Tensor]:
        """Give the training part as normalised floats and labels."""
        return self.normalize(self.train_inputs), self.train_targets

    def test(self) -> tuple[Tensor, Tensor]:
        """Give the test part as normalised floats and labels."""
        return self.normalize(self.test_inputs), self.test_targets

    def normalized_by(self, mean: Sequence[float], std: Sequence[float]) -> "ImageData":
        """Give the same images with another normalisation, as some checkpoints need."""
        return replace(self, mean=tuple(mean), std=tuple(std))

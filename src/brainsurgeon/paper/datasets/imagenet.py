"""ImageNet, or any images in class folders, from files you already have. Decoding needs Pillow."""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from brainsurgeon.paper.datasets.images import DataError, ImageData, pillow

if TYPE_CHECKING:
    from PIL.Image import Image

_SUFFIXES = {".jpeg", ".jpg", ".png"}
_ADVICE = "ImageNet is free for research at https://image-net.org; give its folder of class folders."

Preprocess = Callable[["Image"], np.ndarray]
"""Turns an RGB image into uint8 values of shape (height, width, 3), the same for every image."""


@dataclass(frozen=True)
class ResizeAndCrop:
    """Scale the shorter side to `resize`, then cut out the middle `crop` × `crop` pixels.

    An image that has the cropped size already was prepared beforehand and is left as it is.
    """

    resize: int = 256
    crop: int = 224

    def __call__(self, image: "Image") -> np.ndarray:
        """Apply both steps to one image."""
        from PIL.Image import Resampling

        if image.size == (self.crop, self.crop):
            return np.asarray(image)
        scale = self.resize / min(image.size)
        width, height = (max(self.crop, round(side * scale)) for side in image.size)
        image = image.resize((width, height), Resampling.BILINEAR)
        left, top = (width - self.crop) // 2, (height - self.crop) // 2
        return np.asarray(image.crop((left, top, left + self.crop, top + self.crop)))


def load_imagenet(
    train: str | Path,
    test: str | Path,
    preprocess: Preprocess | None = None,
    mean: tuple[float, ...] = (0.5, 0.5, 0.5),
    std: tuple[float, ...] = (0.5, 0.5, 0.5),
) -> ImageData:
    """Load a training and a test part, each a folder of class folders or a packed file.

    The default normalisation, x / 127.5 − 1, is that of MobileNetV1.
    """
    parts = [_read(Path(path), preprocess) for path in (train, test)]
    (train_inputs, train_targets), (test_inputs, test_targets) = parts
    return ImageData("imagenet", train_inputs, train_targets, test_inputs, test_targets, mean, std)


def _read(path: Path, preprocess: Preprocess | None) -> tuple[Tensor, Tensor]:
    return read_class_folders(path, preprocess) if path.is_dir() else read_packed(path, preprocess)


def read_packed(path: str | Path, preprocess: Preprocess | None = None) -> tuple[Tensor, Tensor]:
    """Read images packed as npz: `jpeg` (the bytes of all), `offsets` (where each begins), `labels`."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no file {path}. {_ADVICE}")
    try:
        with np.load(path, allow_pickle=False) as packed:
            jpeg, offsets, labels = (packed[key] for key in ("jpeg", "offsets", "labels"))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DataError(f"{path} is not an intact file of packed images: {error}.") from error
    if len(offsets) != len(labels) + 1 or offsets[-1] > len(jpeg):
        raise DataError(f"{path} is damaged: {len(labels)} labels but {len(offsets)} offsets.")
    contents = (jpeg[start:end].tobytes() for start, end in pairwise(offsets))
    named = ((f"image {index} in {path}", content) for index, content in enumerate(contents))
    return _decode(named, preprocess), torch.from_numpy(labels).long()


def read_class_folders(
    path: str | Path, preprocess: Preprocess | None = None, per_class: int | None = None
) -> tuple[Tensor, Tensor]:
    """Read the images below a folder with one folder a class, classes numbered in the order of their names.

    `per_class` takes only so many images of each class, the first by name.
    """
    path = Path(path)
    folders = sorted(f for f in path.iterdir() if f.is_dir()) if path.is_dir() else []
    files = [
        (file, label)
        for label, folder in enumerate(folders)
        for file in sorted(f for f in folder.iterdir() if f.suffix.lower() in _SUFFIXES)[:per_class]
    ]
    if not files:
        raise DataError(f"Expected a folder of JPEG or PNG images for each class in {path}. {_ADVICE}")
    named = ((str(file), file.read_bytes()) for file, _ in files)
    return _decode(named, preprocess), torch.tensor([label for _, label in files])


def _decode(contents: Iterable[tuple[str, bytes]], preprocess: Preprocess | None) -> Tensor:
    image_module = pillow()
    preprocess = preprocess or ResizeAndCrop()
    images = []
    for name, content in contents:
        try:
            with image_module.open(io.BytesIO(content)) as image:
                images.append(preprocess(image.convert("RGB")))
        except (OSError, SyntaxError) as error:
            raise DataError(f"{name} cannot be decoded: {error}. Get the file again.") from error
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        raise DataError(f"Expected images of one size after preprocessing, got {sorted(shapes)}.")
    return torch.from_numpy(np.stack(images).transpose(0, 3, 1, 2).copy())

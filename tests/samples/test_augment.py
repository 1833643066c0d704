"""Crops, flips and warps against shifts, mirrors and torch's own affine maps."""

import math

import pytest
import torch
from cases import every_device
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from brainsurgeon.samples.augment import crop_and_flip, has_pictures, random_crop, random_flip, random_warp, warp


def test_a_random_crop_is_a_shift_with_zeros_and_follows_the_generator() -> None:
    images = torch.rand(50, 2, 6, 6) + 1
    cropped = random_crop(images, 2, torch.Generator().manual_seed(3))
    assert torch.equal(cropped, random_crop(images, 2, torch.Generator().manual_seed(3)))
    shifts = set()
    for image, crop in zip(images, cropped, strict=True):
        padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
        matches = [(i, j) for i in range(5) for j in range(5) if torch.equal(padded[:, i : i + 6, j : j + 6], crop)]
        assert len(matches) == 1
        shifts.update(matches)
    assert len(shifts) > 10


def test_a_random_flip_mirrors_about_half_of_the_images() -> None:
    images = torch.rand(200, 1, 3, 5)
    flipped = random_flip(images, torch.Generator().manual_seed(0))
    changed = (flipped != images).flatten(1).any(1)
    assert torch.equal(flipped[changed], images[changed].flip(-1))
    assert 70 < changed.sum() < 130


def test_only_the_images_of_a_batch_are_changed_and_each_by_an_eighth_at_most(generator: torch.Generator) -> None:
    images, targets = torch.rand(30, 1, 16, 16) + 1, torch.arange(30)
    changed, same = crop_and_flip((images, targets), generator)
    assert same is targets
    assert changed.shape == images.shape
    lost = (changed == 0).flatten(1).sum(1)
    assert 0 < int(lost.max()) <= 16 * 16 - 14 * 14  # shifted by two pixels each way


@pytest.mark.parametrize("shape", [(12, 3, 16, 16), (12, 1, 9, 20)])
@pytest.mark.parametrize("limits", [(30.0, 1.5, 0.2), (0.0, 1.3, 0.0), (15.0, 1.0, 0.0), (0.0, 1.0, 0.3)])
def test_a_warp_is_the_affine_map_of_its_draws(
    shape: tuple[int, ...], limits: tuple[float, float, float], generator: torch.Generator
) -> None:
    images, (turn, zoom, shift) = torch.rand(shape, generator=generator, dtype=torch.float64), limits
    found = random_warp(images, torch.Generator().manual_seed(4), turn, zoom, shift)
    angle, size, across, down = 2 * torch.rand(4, len(images), generator=torch.Generator().manual_seed(4)).double() - 1
    maps = torch.zeros(len(images), 2, 3, dtype=torch.float64)
    for image in range(len(images)):
        a, z, tall = math.radians(turn * float(angle[image])), zoom ** float(size[image]), shape[2] / shape[3]
        maps[image] = torch.tensor(
            [
                [z * math.cos(a), -z * math.sin(a) * tall, 2 * shift * float(across[image])],
                [z * math.sin(a) / tall, z * math.cos(a), 2 * shift * float(down[image])],
            ]
        )
    grid = affine_grid(maps, list(shape), align_corners=False)
    expected = grid_sample(images, grid, padding_mode="border", align_corners=False)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert all((found[k] - images[k]).abs().max() > 1e-3 for k in range(len(images)))


@pytest.mark.parametrize(("height", "width"), [(64, 64), (32, 128), (128, 32)])
def test_a_bar_leans_by_the_angle_drawn_whatever_the_shape_of_the_picture(height: int, width: int) -> None:
    images = torch.zeros(20, 1, height, width, dtype=torch.float64)
    images[..., width // 2 - 1 : width // 2 + 1] = 1
    turned = random_warp(images, torch.Generator().manual_seed(4), 10.0, 1.0, 0.0)
    places = (turned * torch.arange(width)).sum(-1) / turned.sum(-1)  # of the bar, in every row of pixels
    top, bottom = height // 4, 3 * height // 4
    lean = torch.atan((places[:, 0, bottom] - places[:, 0, top]) / (bottom - top)).rad2deg()
    drawn = 2 * torch.rand(4, 20, generator=torch.Generator().manual_seed(4))[0].double() - 1
    torch.testing.assert_close(lean, 10 * drawn, rtol=0, atol=0.1)


def test_a_warp_without_limits_changes_nothing(generator: torch.Generator) -> None:
    images = torch.rand(5, 3, 8, 11, generator=generator)
    torch.testing.assert_close(random_warp(images, generator, 0.0, 1.0, 0.0), images, rtol=0, atol=1e-5)


@pytest.mark.parametrize("change", [crop_and_flip, warp])
def test_inputs_alone_are_changed_as_those_with_targets(change) -> None:  # type: ignore[no-untyped-def]
    images, targets = torch.rand(6, 3, 16, 16), torch.arange(6)
    alone = change(images, torch.Generator().manual_seed(1))
    changed, same = change((images, targets), torch.Generator().manual_seed(1))
    assert same is targets
    assert isinstance(alone, Tensor)
    assert torch.equal(alone, changed)
    assert not torch.equal(alone, images)


def test_pictures_are_grey_or_coloured_images() -> None:
    picture, target = torch.rand(2, 3, 8, 8), torch.arange(2)
    assert has_pictures(picture)
    assert has_pictures((picture, target))
    assert has_pictures([torch.rand(2, 1, 28, 28), target])
    others = (picture.flatten(1), torch.rand(2, 16, 8, 8), torch.rand(2, 3, 8, 4), picture.long(), {"x": picture}, [])
    for other in others:
        assert not has_pictures(other)
        assert not has_pictures((other, target))


@every_device
def test_a_warp_is_the_same_on_every_device(device: str) -> None:
    images = torch.rand(6, 3, 16, 16)
    expected = random_warp(images, torch.Generator().manual_seed(2))
    found = random_warp(images.to(device), torch.Generator().manual_seed(2))
    assert found.device.type == device
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_images_in_half_precision_are_warped_to_the_pixel(dtype: torch.dtype) -> None:
    images = torch.rand(3, 1, 224, 224).to(dtype)
    found = random_warp(images, torch.Generator().manual_seed(5))
    expected = random_warp(images.float(), torch.Generator().manual_seed(5))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=5e-3)

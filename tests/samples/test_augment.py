"""Crops and flips against shifts and mirrors by hand."""

import torch

from brainsurgeon.samples.augment import crop_and_flip, random_crop, random_flip


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

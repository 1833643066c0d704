"""Images in memory: normalisation, and shapes that fit."""

import pytest
import torch

from brainsurgeon.paper.datasets import DataError, ImageData


def tiny(mean: tuple[float, ...] = (0.5, 0.5, 0.5)) -> ImageData:
    images, labels = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4), torch.tensor([0, 1])
    return ImageData("tiny", images, labels, images[:1], labels[:1], mean, (0.5, 0.25, 0.5))


def test_normalising_is_subtracting_the_mean_and_dividing_by_the_deviation() -> None:
    data = tiny()
    inputs, targets = data.train()
    assert inputs.dtype == torch.float32
    assert inputs[1, 1, 2, 3].item() == pytest.approx((data.train_inputs[1, 1, 2, 3] / 255 - 0.5) / 0.25)
    assert targets.tolist() == [0, 1]
    other = data.normalized_by((0, 0, 0), (1, 1, 1))
    torch.testing.assert_close(other.test()[0], data.test_inputs / 255)


def test_images_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="mean and standard deviation for each channel"):
        tiny(mean=(0.5,))
    with pytest.raises(DataError, match="Expected 2 train labels"):
        ImageData("x", tiny().train_inputs, torch.zeros(3), *tiny().train(), (0,) * 3, (1,) * 3)

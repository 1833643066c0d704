"""Images in memory: normalisation, idx files, augmentation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.paper.datasets import DataError, ImageData, cache_folder
from brainsurgeon.paper.datasets.idx import decode_idx, encode_idx


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


def test_the_cache_folder_is_argument_variable_or_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRAINSURGEON_DATA", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "brainsurgeon"
    monkeypatch.setenv("BRAINSURGEON_DATA", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    assert cache_folder("/else") == Path("/else")


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_idx_gives_back_what_was_written(shape: list[int], seed: int) -> None:
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(decode_idx(encode_idx(array), "memory"), array)


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"\0\0\x08\x02\0\0", b"PNG.", b"\0\0\x08\1\0\0\0\3ab"])
def test_damaged_idx_files_are_refused(content: bytes) -> None:
    with pytest.raises(DataError, match="there"):
        decode_idx(content, "there")

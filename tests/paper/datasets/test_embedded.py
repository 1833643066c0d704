"""What the demonstration ships is there, small, and right."""

from importlib.resources import files

import pytest
import torch

from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets import DataError, load
from brainsurgeon.paper.datasets.embedded import load_demo


def test_the_network_classifies_the_sample_well() -> None:
    model, data = load_demo()
    assert not model.training
    assert data.train_inputs.shape == (5000, 1, 28, 28)
    assert data.test_inputs.shape == (2000, 1, 28, 28)
    assert data.train_targets.bincount().min() > 400
    assert 94 < accuracy(model, data) < 98


def test_the_sample_is_taken_from_the_right_part_of_mnist() -> None:
    try:
        full = load("mnist")
    except DataError as error:
        pytest.skip(str(error))
    _, sample = load_demo()
    for part in ("train", "test"):
        known = {image.numpy().tobytes() for image in getattr(full, f"{part}_inputs")}
        assert all(image.numpy().tobytes() in known for image in getattr(sample, f"{part}_inputs")[:200])


def test_the_assets_are_small_and_attributed() -> None:
    assets = files("brainsurgeon.paper") / "assets"
    sizes = {entry.name: len(entry.read_bytes()) for entry in assets.iterdir() if entry.is_file()}
    assert sum(sizes.values()) < 2 * 2**20
    assert "Creative Commons" in (assets / "MNIST.txt").read_text()


def test_loading_twice_gives_separate_networks() -> None:
    (first, _), (second, _) = load_demo(), load_demo()
    with torch.no_grad():
        first.fc1.weight.zero_()
    assert second.fc1.weight.abs().sum() > 0

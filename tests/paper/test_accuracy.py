"""The share of right answers, from any kind of data, and the modes left alone."""

import pytest
import torch
from small import network, samples
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets import ImageData


def test_accuracy_takes_what_prune_takes() -> None:
    model, (x, y) = network(), samples(200)
    expected = 100 * float((model(x).argmax(1) == y).float().mean())
    forms = [(x, y), TensorDataset(x, y), DataLoader(TensorDataset(x, y), 16), [(x[:70], y[:70]), (x[70:], y[70:])]]
    for data in forms:
        assert accuracy(model, data) == pytest.approx(expected)
    with pytest.raises(BrainsurgeonError, match="empty"):
        accuracy(model, [])


def test_images_are_normalised_and_read_by_their_part() -> None:
    """A network that says which half of the picture is bright."""
    images = torch.zeros(6, 1, 2, 2, dtype=torch.uint8)
    images[::2, :, 0], images[1::2, :, 1] = 255, 255
    labels = torch.tensor([0, 1, 0, 1, 1, 1])
    data = ImageData("halves", images, labels, images[:2], labels[:2], mean=(0.5,), std=(0.5,))
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]))
    assert accuracy(model, data) == 100.0
    assert accuracy(model, data, part="train", batch_size=4) == pytest.approx(100 * 5 / 6)


def test_targets_that_are_left_out_do_not_count_and_modes_stay() -> None:
    model = nn.Sequential(nn.Dropout(0.9), nn.Conv1d(3, 3, 1, bias=False), nn.Dropout(0.9)).train()
    model[2].eval()
    with torch.no_grad():
        model[1].weight.copy_(torch.eye(3).unsqueeze(2))
    inputs = torch.eye(3).unsqueeze(0)  # at place k the answer is k
    assert accuracy(model, (inputs, torch.tensor([[0, -100, 1]]))) == 50.0
    assert [module.training for module in model] == [True, True, False]
    with pytest.raises(BrainsurgeonError, match="no samples"):
        accuracy(model, (inputs, torch.full((1, 3), -100)))
    with pytest.raises(BrainsurgeonError, match="batches of"):
        accuracy(model, [inputs])

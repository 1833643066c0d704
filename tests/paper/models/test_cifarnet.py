"""CIFARNet is three convolutions with pooling, and two matrices."""

import torch
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.paper.models.cifarnet import CIFARNet


def test_the_logits_are_those_of_the_formula() -> None:
    """A maximum before the first ReLU, averages after the others."""
    model = CIFARNet().double()
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one, two, three, first, second = (parameter.detach() for parameter in model.parameters())
    x = F.max_pool2d(F.conv2d(images, one, padding=2), 3, 2).clamp_min(0)
    x = F.conv2d(x, two, padding=2).clamp_min(0).unfold(2, 3, 2).unfold(3, 3, 2).mean((-2, -1))
    x = F.conv2d(x, three, padding=2).clamp_min(0).unfold(2, 3, 2).unfold(3, 3, 2).mean((-2, -1))
    expected = (x.reshape(2, 576) @ first.T).clamp_min(0) @ second.T
    torch.testing.assert_close(model(images).detach(), expected)


def test_its_layers_have_the_papers_sizes_and_no_biases() -> None:
    shapes = [tuple(parameter.shape) for parameter in CIFARNet().parameters()]
    assert shapes == [(32, 3, 5, 5), (32, 32, 5, 5), (64, 32, 5, 5), (64, 576), (10, 64)]

"""MLPNet is three matrices and two ReLUs."""

import torch

from brainsurgeon.paper.models.mlpnet import MLPNet


def test_the_logits_are_those_of_the_formula() -> None:
    model = MLPNet().double()
    images = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first, second, third = (parameter.detach() for parameter in model.parameters())
    hidden = (images.reshape(3, 784) @ first.T).clamp_min(0)
    expected = (hidden @ second.T).clamp_min(0) @ third.T
    torch.testing.assert_close(model(images).detach(), expected)


def test_its_layers_have_the_papers_sizes_and_no_biases() -> None:
    assert [tuple(parameter.shape) for parameter in MLPNet().parameters()] == [(40, 784), (20, 40), (10, 20)]

"""The residual networks: layers, shortcuts and depths."""

import pytest
import torch

from brainsurgeon.paper.models import ResNet, build
from brainsurgeon.paper.models.resnet import ResidualBlock


def test_resnet20_has_the_papers_18_prunable_convolutions() -> None:
    convolutions = [m for m in build("resnet20").modules() if isinstance(m, torch.nn.Conv2d)]
    inner = [c for c in convolutions if c.kernel_size == (3, 3) and c.in_channels > 3]
    assert len(inner) == 18
    assert sum(c.weight.numel() for c in inner) == 267_264


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="6n"):
        ResNet(depth=21)
    with pytest.raises(ValueError, match="6n"):
        ResNet(depth=2)


def test_a_block_is_the_shortcut_and_two_convolutions() -> None:
    """With the residual at zero only the shortcut is left; it changes its shape where the stride does."""
    inputs = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    plain, narrower = (ResidualBlock(16, 16, 1).eval(), ResidualBlock(16, 32, 2).eval())
    for block in (plain, narrower):
        torch.nn.init.zeros_(block.bn2.weight)
    with torch.no_grad():
        torch.testing.assert_close(plain(inputs), inputs.relu())
        torch.testing.assert_close(narrower(inputs), narrower.downsample(inputs).relu())
        assert narrower(inputs).shape == (2, 32, 4, 4)


@pytest.mark.parametrize("depth", [8, 20])
def test_depth_counts_the_layers_on_the_longest_way(depth: int) -> None:
    model = ResNet(depth)
    layers = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(layers) + 1 == depth

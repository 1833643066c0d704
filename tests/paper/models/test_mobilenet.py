"""MobileNet: widths, and padding as the published weights were trained with."""

import pytest
import torch

from brainsurgeon.paper.models import MobileNetV1
from brainsurgeon.paper.models.mobilenet import ConvNormAct, SeparableBlock


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="positive width"):
        MobileNetV1(width=0)


def test_a_stride_of_two_is_padded_below_and_on_the_right_alone() -> None:
    """A kernel that looks at its first corner sees the very pixels; one that looks at its last sees zeros beyond."""
    layer = ConvNormAct(1, 1, 3, stride=2).eval()
    image = torch.arange(1.0, 17.0).view(1, 1, 4, 4) / 10
    unit = 1 / (1 + layer.bn.eps) ** 0.5
    with torch.no_grad():
        for corner, expected in ((0, image[0, 0, ::2, ::2]), (2, torch.tensor([[1.1, 0.0], [0.0, 0.0]]))):
            layer.conv.weight.zero_()
            layer.conv.weight[0, 0, corner, corner] = 1.0
            torch.testing.assert_close(layer(image)[0, 0], unit * expected)
        assert float(layer(1000 * image).max()) == 6.0


def test_channels_are_convolved_by_themselves_then_mixed() -> None:
    block = SeparableBlock(4, 6, stride=2)
    assert block.depthwise.conv.weight.shape == (4, 1, 3, 3)
    assert block.pointwise.conv.weight.shape == (6, 4, 1, 1)
    assert block.eval()(torch.ones(1, 4, 8, 8)).shape == (1, 6, 4, 4)


@pytest.mark.parametrize("width", [0.25, 1.0])
def test_every_number_of_channels_follows_the_width(width: float) -> None:
    model = MobileNetV1(width, num_classes=7)
    assert model.stem.conv.out_channels == int(32 * width)
    assert model.classifier.in_features == model.blocks[-1].pointwise.conv.out_channels == int(1024 * width)
    assert len(model.blocks) == 13
    assert model.classifier.out_features == 7

"""MobileNetV1 (Howard et al., 2017) of any width."""

from torch import Tensor, nn
from torch.nn.functional import pad, relu6

# Output channels at width 1 and stride of the 13 depthwise-separable blocks.
_BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]


class ConvNormAct(nn.Module):
    """A convolution without bias, batch normalisation and ReLU6."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int = 1, groups: int = 1):
        super().__init__()
        # With stride 2 the image is padded below and on the right only, as TensorFlow does; the published
        # weights were trained that way.
        padding = 0 if stride == 2 else kernel // 2
        self.stride = stride
        self.conv = nn.Conv2d(
            in_channels, out_channels, kernel, stride=stride, padding=padding, groups=groups, bias=False
        )
        self.bn = nn.BatchNorm2d(out_channels, eps=1e-3)

    def forward(self, inputs: Tensor) -> Tensor:
        """Give relu6(norm(conv(inputs)))."""
        if self.stride == 2:
            inputs = pad(inputs, (0, 1, 0, 1))
        return relu6(self.bn(self.conv(inputs)))


class SeparableBlock(nn.Module):
    """A 3×3 convolution of each channel by itself, then a 1×1 convolution that mixes them."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.depthwise = ConvNormAct(in_channels, in_channels, 3, stride, groups=in_channels)
        self.pointwise = ConvNormAct(in_channels, out_channels, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply both convolutions."""
        return self.pointwise(self.depthwise(inputs))


class MobileNetV1(nn.Module):
    """MobileNetV1 with every number of channels multiplied by `width`.

    Expects RGB images scaled to [−1, 1] (x / 127.5 − 1).
    """

    def __init__(self, width: float = 1.0, num_classes: int = 1000) -> None:
        super().__init__()
        if width <= 0:
            raise ValueError(f"Expected a positive width, got {width}.")
        channels = int(32 * width)
        self.stem = ConvNormAct(3, channels, 3, stride=2)
        blocks = []
        for base, stride in _BLOCKS:
            blocks.append(SeparableBlock(channels, int(base * width), stride))
            channels = int(base * width)
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Give the logits of images of shape (batch, 3, height, width)."""
        return self.classifier(self.blocks(self.stem(images)).mean((-2, -1)))

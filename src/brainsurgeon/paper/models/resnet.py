"""The residual networks for CIFAR-10 (He et al., 2016), by depth."""

from torch import Tensor, nn
from torch.nn.functional import relu


def _conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut; a 1×1 convolution where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(in_channels, out_channels, stride)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = _conv3x3(out_channels, out_channels)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Give relu(shortcut + residual)."""
        residual = relu(self.bn1(self.conv1(inputs)))
        residual = self.bn2(self.conv2(residual))
        return relu(residual + self.downsample(inputs))


class ResNet(nn.Module):
    """A ResNet of depth 6n + 2 for 32×32 images: three stages of n blocks with 16, 32 and 64 channels."""

    def __init__(self, depth: int = 20, num_classes: int = 10) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise ValueError(f"Expected a depth of the form 6n + 2 (20, 32, 44, 56, …), got {depth}.")
        self.conv1 = _conv3x3(3, 16)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        self.fc = nn.Linear(64, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Give the logits of images of shape (batch, 3, 32, 32)."""
        features = relu(self.bn1(self.conv1(images)))
        features = self.layer3(self.layer2(self.layer1(features)))
        return self.fc(features.mean((-2, -1)))


def _stage(in_channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = ResidualBlock(in_channels, out_channels, stride)
    return nn.Sequential(first, *(ResidualBlock(out_channels, out_channels, 1) for _ in range(blocks - 1)))

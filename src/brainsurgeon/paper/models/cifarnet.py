"""CIFARNet, the small convolutional network for CIFAR-10."""

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d, relu


class CIFARNet(nn.Module):
    """Three 5×5 convolutions and two linear layers, without biases: 116,704 weights.

    The channels go 3 → 32 → 32 → 64, each convolution followed by a pooling of 3 by stride 2 (maximum,
    average, average), and the 576 features that are left go → 64 → 10.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 5, padding=2, bias=False)
        self.conv2 = nn.Conv2d(32, 32, 5, padding=2, bias=False)
        self.conv3 = nn.Conv2d(32, 64, 5, padding=2, bias=False)
        self.fc1 = nn.Linear(64 * 3 * 3, 64, bias=False)
        self.fc2 = nn.Linear(64, 10, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Give the logits of images of shape (..., 3, 32, 32)."""
        features = relu(max_pool2d(self.conv1(images), 3, stride=2))
        features = avg_pool2d(relu(self.conv2(features)), 3, stride=2)
        features = avg_pool2d(relu(self.conv3(features)), 3, stride=2)
        return self.fc2(relu(self.fc1(features.flatten(-3))))

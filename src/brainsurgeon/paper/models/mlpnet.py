"""MLPNet, the small fully connected network for MNIST."""

from torch import Tensor, nn
from torch.nn.functional import relu


class MLPNet(nn.Module):
    """Three linear layers, 784 → 40 → 20 → 10, without biases: 32,360 weights.

    Takes images of any shape with 784 pixels (their last three dimensions are flattened) and gives logits.
    A checkpoint trained with log-softmax and the negative log-likelihood is the same network under cross
    entropy.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(28 * 28, 40, bias=False)
        self.fc2 = nn.Linear(40, 20, bias=False)
        self.fc3 = nn.Linear(20, 10, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Give the logits of images of shape (..., 1, 28, 28)."""
        hidden = relu(self.fc1(images.flatten(-3)))
        return self.fc3(relu(self.fc2(hidden)))

"""What the tests of pruning share."""

import pytest
from surveys import SOME

from brainsurgeon import Sensitivity, sensitivity
from brainsurgeon.paper.datasets.embedded import load_demo


@pytest.fixture(scope="session")
def demo() -> Sensitivity:
    """A survey of the demonstration network."""
    model, data = load_demo()
    images, labels = data.train()
    return sensitivity(model, (images[:600], labels[:600]), sparsities=SOME, max_samples=400, loss_samples=200)

"""What the tests of files share."""

import pytest
from torch import nn


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))

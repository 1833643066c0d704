"""What the tests of the paper's training share."""

import pytest
from stripes import stripes

from brainsurgeon.paper.datasets import ImageData


@pytest.fixture(scope="session")
def digits() -> ImageData:
    """Stripes in place of digits."""
    return ImageData("mnist", *stripes(400, 0), *stripes(100, 1), mean=(0.13,), std=(0.31,))

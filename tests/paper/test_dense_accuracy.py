"""The paper's dense networks score on our data what they score in the paper's tables."""

from pathlib import Path

import pytest
import torch

from brainsurgeon.files.checkpoint import load_checkpoint
from brainsurgeon.paper.datasets import DataError, load
from brainsurgeon.paper.models import build

SHARED = Path(__file__).parents[3] / "shared" / "checkpoints"


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the shared checkpoints are not in {SHARED}")
@pytest.mark.parametrize(
    ("name", "file", "data_name", "right"),
    [
        ("mlpnet", "mnist_25_epoch_93.97.ckpt", "mnist", 9397),
        pytest.param("resnet20", "resnet20_cifar10.pth.tar", "cifar10", 9143, marks=pytest.mark.slow),
    ],
)
def test_dense_accuracy(name: str, file: str, data_name: str, right: int) -> None:
    try:
        data = load(data_name)
    except DataError as error:
        pytest.skip(str(error))
    model = load_checkpoint(build(name), SHARED / file).eval()
    inputs, targets = data.test()
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in inputs.split(500)])
    # One image on the border between two classes may fall either way with another order of summation.
    assert abs((logits.argmax(-1) == targets).sum().item() - right) <= 1

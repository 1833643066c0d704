"""2:4 networks in torch's semi-structured kernels."""

import pytest
import torch
from cases import needs_gpu
from torch import nn

import brainsurgeon
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.export import to_semi_structured
from brainsurgeon.export.semi_structured import is_two_of_four


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 12))


def pruned(device: str = "cpu") -> nn.Module:
    data = torch.randn(96, 128), torch.randint(0, 12, (96,))
    settings = {"method": "layerwise", "pattern": "2:4", "progress": False}
    return brainsurgeon.prune(network().to(device), data, 0.5, **settings).model


@pytest.mark.parametrize(
    ("row", "expected"),
    [([1, 0, 0, 2, 0, 0, 3, 4], True), ([1, 0, 2, 3, 0, 0, 0, 0], False), ([0] * 8, True), ([1, 0, 0], False)],
)
def test_two_of_four_is_seen(row: list[float], expected: bool) -> None:
    assert is_two_of_four(torch.tensor([row], dtype=torch.float32)) is expected


def test_a_network_without_the_pattern_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match='no linear layer is 2:4 along its inputs: prune with pattern="2:4"'):
        to_semi_structured(network())


def test_a_network_on_the_cpu_or_in_full_precision_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match=r"float16 or bfloat16; the weight of 0 is torch\.float32 on cpu"):
        to_semi_structured(pruned())


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_kernels_give_what_the_dense_layers_give(dtype: torch.dtype) -> None:
    model = pruned("cuda").to(dtype)
    sparse, changed = to_semi_structured(model)
    assert changed == ["0", "2"]  # 12 rows are no multiple of 32
    inputs = torch.randn(64, 128, device="cuda", dtype=dtype)
    expected, found = model.double()(inputs.double()), sparse(inputs).double()
    assert float((found - expected).norm() / expected.norm()) < 2e-2
    assert all(parameter.dtype == torch.float64 for parameter in model.parameters())  # the original stays whole

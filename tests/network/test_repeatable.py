"""The same seed on the same device: the same result."""

import pytest
import torch
from cases import needs_gpu
from torch import nn

import brainsurgeon
from brainsurgeon.network.repeatable import repeatable


def flags() -> tuple[bool, bool, bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        torch.utils.deterministic.fill_uninitialized_memory,
    )


def test_deterministic_algorithms_are_asked_for_while_a_gpu_works_and_not_after() -> None:
    before = flags()
    with pytest.raises(KeyError):
        fail_inside()
    assert flags() == before


def fail_inside() -> None:
    with repeatable(torch.device("cuda")):
        assert flags() == (True, True, True, False, False)
        raise KeyError


def test_nothing_is_changed_for_a_cpu() -> None:
    before = flags()
    with repeatable(torch.device("cpu")):
        assert flags() == before


def test_a_user_who_wants_errors_keeps_them() -> None:
    before = flags()
    torch.use_deterministic_algorithms(True)
    try:
        with repeatable(torch.device("cuda")):
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("method", ["layerwise", "cbs", "gradual"])
def test_the_same_seed_gives_the_same_bits_on_a_gpu(method: str) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 49, 10)).cuda().eval()
    data = torch.randn(256, 3, 16, 16), torch.randint(0, 10, (256,))
    settings = {"max_gradients": 640} if method == "gradual" else {}
    runs = [brainsurgeon.prune(model, data, 0.7, method, progress=False, **settings) for _ in range(2)]
    first, second = (dict(run.model.state_dict()) for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)

"""Torch's switches are set for a while, and are the user's again, whichever of the two kinds the user has set."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from brainsurgeon.network.precision import has_recurrent, without_cudnn

SWITCHES = (
    "",
    "torch.set_float32_matmul_precision('medium')",
    "torch.set_float32_matmul_precision('high')",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cudnn.allow_tf32 = False",
    "torch.backends.cudnn.fp32_precision = 'ieee'",
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
    "torch.backends.fp32_precision = 'tf32'",
    "torch.backends.fp32_precision = 'ieee'",
)
TELL = """
import torch
def asked(ask):
    try:
        return ask()
    except RuntimeError:  # torch refuses to tell the older one where the newer is set
        return "untold"
def told():
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    older = (torch.get_float32_matmul_precision, lambda: cuda.matmul.allow_tf32, lambda: cudnn.allow_tf32)
    newer = cuda.matmul, cudnn, cudnn.conv, cudnn.rnn, torch.backends.mkldnn.matmul, torch.backends
    return [asked(ask) for ask in older] + [switch.fp32_precision for switch in newer] + [cudnn.enabled]
"""


def runs(program: str) -> None:
    """In a process of its own: torch's two switches cannot be set back to nothing."""
    done = subprocess.run([sys.executable, "-c", TELL + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("switch", SWITCHES)
def test_the_users_switches_are_as_before(switch: str) -> None:
    runs(f"""
from brainsurgeon.network.precision import fast_products, full_precision
{switch}
before = told()
cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
for _ in range(2):
    with fast_products():
        assert cuda.matmul.fp32_precision == "tf32"
        assert before[1] == "untold" or cuda.matmul.allow_tf32
    assert told() == before, (before, told())
    with full_precision():
        assert [part.fp32_precision for part in (cuda.matmul, cudnn.conv, cudnn.rnn)] == ["ieee"] * 3
        assert asked(lambda: cudnn.allow_tf32) in (False, "untold")
        assert before[1] == "untold" or not cuda.matmul.allow_tf32
    assert told() == before, (before, told())
""")


@pytest.mark.parametrize("switch", SWITCHES[-3:])
def test_networks_of_all_kinds_are_pruned_under_the_newer_switches(switch: str) -> None:
    runs(f"""
import brainsurgeon
from torch import nn
{switch}
before = told()
class Last(nn.Module):
    def forward(self, found):
        return found[0][:, -1]
recurrent = nn.Sequential(nn.GRU(4, 6, batch_first=True), Last(), nn.Linear(6, 3))
convolutions = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))
for model, inputs in ((recurrent, torch.randn(40, 5, 4)), (convolutions, torch.randn(40, 1, 4, 4))):
    for method in ("cbs", "layerwise", "auto"):
        settings = dict(max_gradients=320) if method == "auto" else {{}}
        data = inputs, torch.arange(40) % 3
        assert brainsurgeon.prune(model, data, 0.5, method, progress=False, **settings).sparsity == 0.5
assert told() == before, (before, told())
""")


def test_only_cudnn_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    before = torch.backends.cudnn.enabled
    with without_cudnn():
        assert not torch.backends.cudnn.enabled
        assert torch.backends.cudnn.deterministic
    assert torch.backends.cudnn.enabled == before


def test_recurrent_layers_are_found_at_any_depth() -> None:
    assert has_recurrent(nn.Sequential(nn.Sequential(nn.LSTM(2, 3))))
    assert not has_recurrent(nn.Sequential(nn.Linear(2, 3)))

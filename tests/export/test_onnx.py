"""ONNX files give the model's own outputs in onnxruntime."""

from pathlib import Path

import pytest
import torch
from cases import CASES
from torch import nn

from brainsurgeon import BrainsurgeonError, prune
from brainsurgeon.export import onnx as onnx_export
from brainsurgeon.export import to_onnx

pytest.importorskip("onnxscript", reason="needs brainsurgeon[onnx]")
pytest.importorskip("onnxruntime", reason="needs brainsurgeon[onnx]")


@pytest.mark.parametrize("name", ["linear", "conv2d", "embedding", "attention", "several_inputs", "batch_norm_dropout"])
def test_every_kind_of_model_gives_the_same_outputs(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    result = prune(case.model(), case.data(), 0.6, "mp", case.loss, num_gradients=1, progress=False)
    exported = to_onnx(result.model, case.data()[0], tmp_path / "model.onnx")
    assert exported.difference < 1e-5
    assert exported.zeros >= result.pruned


def test_a_file_for_one_batch_size_and_inputs_by_name(tmp_path: Path) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.layer(x) * scale}

    example = {"x": torch.ones(2, 4), "scale": torch.full((2, 1), 2.0)}
    assert to_onnx(Named(), example, tmp_path / "a.onnx", dynamic_batch=False).difference < 1e-5
    assert to_onnx(Named(), example, tmp_path / "b.onnx").difference < 1e-5


@pytest.mark.parametrize("dynamic", [False, True])
def test_inputs_may_hold_what_is_no_tensor(dynamic: bool, tmp_path: Path) -> None:
    class Flagged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, twice: bool = False) -> torch.Tensor:
            found = self.layer(x) if mask is None else self.layer(x) * mask
            return 2 * found if twice else found

    example = {"x": torch.ones(2, 4), "mask": None, "twice": True}
    assert to_onnx(Flagged(), example, tmp_path / "a.onnx", dynamic_batch=dynamic).difference < 1e-5


def test_a_file_that_differs_is_not_passed_off_as_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(4, 3)
    written = onnx_export._export

    def wrong(model: nn.Module, *args: object) -> None:
        other = nn.Linear(4, 3)
        nn.init.constant_(other.weight, 7.0)
        written(other, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(onnx_export, "_export", wrong)
    with pytest.raises(BrainsurgeonError, match="differs from the original"):
        to_onnx(model, torch.ones(2, 4), tmp_path / "model.onnx")


def test_a_model_that_cannot_be_traced_is_named_as_such(tmp_path: Path) -> None:
    case = CASES["branching"]
    with pytest.raises(BrainsurgeonError, match="PyTorch cannot export Branching to ONNX"):
        to_onnx(case.model(), case.data()[0], tmp_path / "model.onnx")


def test_numbers_that_onnxruntime_does_not_have_are_named_and_no_unchecked_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(BrainsurgeonError, match=r"Linear, whose parameters are bfloat16: .*export model\.float\(\)"):
        to_onnx(nn.Linear(6, 3).bfloat16(), torch.randn(4, 6).bfloat16(), path)
    assert not path.exists()

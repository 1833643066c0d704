"""A shrunk network comes back from its folder, into a model of the kind that was shrunk, and into no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structures as s
import torch

import brainsurgeon
from brainsurgeon.files.folder import DENSE
from brainsurgeon.files.sealed import FileError, read_sealed, write_sealed
from brainsurgeon.structured.attention import Attention
from brainsurgeon.structured.saved import KIND

QUICK = {"progress": False, "seconds": 0}


@pytest.fixture(scope="module")
def result() -> brainsurgeon.ShrinkResult:
    return brainsurgeon.shrink(s.seeded(s.VisionTransformer), s.images(), units=0.5, **QUICK)


def test_a_saved_network_comes_back_the_same(result: brainsurgeon.ShrinkResult, tmp_path: Path) -> None:
    result.save(tmp_path / "small")
    again = brainsurgeon.load_shrunk(tmp_path / "small", s.VisionTransformer().double().eval())
    with torch.no_grad():
        assert torch.equal(again(s.images()[0]), result.model(s.images()[0]))
    assert again.attention.num_heads == 3
    record = json.loads((tmp_path / "small" / "result.json").read_text())
    assert record["parameters"] == list(result.parameters)
    assert record["groups"][0]["name"] == "attention.qkv"


def test_a_buffer_that_is_no_part_of_the_state_is_cut_as_it_was(tmp_path: Path) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(6, 16), torch.nn.Linear(16, 3)
            self.register_buffer("scale", torch.linspace(1, 2, 16), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x).relu() * self.scale)

    small = brainsurgeon.shrink(s.seeded(Scaled), s.vectors(), units=0.5, **QUICK)
    small.save(tmp_path / "small")
    again = brainsurgeon.load_shrunk(tmp_path / "small", Scaled().double().eval())
    assert torch.equal(again(s.vectors()[0]), small.model(s.vectors()[0]))
    with pytest.raises(FileError, match=r"as torch.float64, the model as torch.float16"):
        brainsurgeon.load_shrunk(tmp_path / "small", Scaled().half())


def test_attention_of_pytorch_comes_back_with_fewer_heads_or_all(tmp_path: Path) -> None:
    for number, exclude in enumerate((None, "layer.self_attn")):
        small = brainsurgeon.shrink(s.seeded(s.Encoder), s.sequences(width=8), units=0.5, exclude=exclude, **QUICK)
        small.save(tmp_path / str(number))
        again = brainsurgeon.load_shrunk(tmp_path / str(number), s.Encoder().double().eval())
        with torch.no_grad():
            found, wanted = (one(s.sequences(width=8)[0]) for one in (again, small.model))
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_pytorchs_own_transformer_is_called_with_padded_texts_once_shrunk_and_once_loaded(tmp_path: Path) -> None:
    """In evaluation mode without gradients it asks its first layer for the weights of PyTorch's own attention."""
    data = s.texts()
    result = brainsurgeon.shrink(s.seeded(s.Padded).float(), data, macs=0.7, **QUICK)
    assert isinstance(result.model.encoder.layers[0].self_attn, Attention)
    result.save(tmp_path / "small")
    again = brainsurgeon.load_shrunk(tmp_path / "small", s.Padded().eval())
    with torch.no_grad():
        found = result.model(data[0])
        assert torch.equal(again(data[0]), found)
    torch.testing.assert_close(result.model(data[0]), found)


def test_another_network_is_refused(result: brainsurgeon.ShrinkResult, tmp_path: Path) -> None:
    result.save(tmp_path / "small")
    with pytest.raises(FileError, match="does not fit Perceptron"):
        brainsurgeon.load_shrunk(tmp_path / "small", s.Perceptron())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cuts", [["head.weight", 0, [0, 99]]]),
        ("cuts", [["head.weight", 0, []]]),
        ("cuts", [["head.weight", 7, [0]]]),
        ("numbers", [["attention", "num_heads", 10**9]]),
        ("numbers", [["attention", "forward", 1]]),
    ],
)
def test_what_a_file_says_is_checked(
    result: brainsurgeon.ShrinkResult, tmp_path: Path, key: str, value: object
) -> None:
    result.save(tmp_path / "small")
    tensors, info, _ = read_sealed(tmp_path / "small" / DENSE, KIND)
    told = {name: part for name, part in info.items() if name not in ("version", "kind")} | {key: value}
    write_sealed(tensors, tmp_path / "small" / DENSE, KIND, told)
    with pytest.raises(FileError, match="does not fit VisionTransformer"):
        brainsurgeon.load_shrunk(tmp_path / "small", s.VisionTransformer().double())


def test_a_damaged_file_is_refused(result: brainsurgeon.ShrinkResult, tmp_path: Path) -> None:
    result.save(tmp_path / "small")
    path = tmp_path / "small" / DENSE
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(FileError, match="damaged"):
        brainsurgeon.load_shrunk(tmp_path / "small", s.VisionTransformer().double())

"""A pruned model saved and loaded: bit for bit, over module kinds and dtypes, and refused where anything differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from bits_of import DTYPES, same_bits
from cases import CASES, TABLE, Case, Tied, seeded
from safetensors.torch import load_file
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon import BrainsurgeonError, load, load_masks, save, save_masks
from brainsurgeon.files import FileError, read
from brainsurgeon.files.folder import check_place
from brainsurgeon.files.sealed import read_sealed, write_sealed
from brainsurgeon.network.weights import find_weights
from brainsurgeon.network.zeros import set_zeros
from brainsurgeon.paper.models import build

both_forms = pytest.mark.parametrize("compressed", [False, True], ids=["dense", "compressed"])


def make(case: Case, share: float = 0.7) -> tuple[nn.Module, dict[str, Tensor]]:
    model = case.model()
    layers = find_weights(model).layers
    masks = seeded(lambda: {layer.name: torch.rand(layer.shape) < share for layer in layers}, 3)
    set_zeros(model, masks)
    return model, masks


def tiny(
    folder: Path, compressed: bool, record: dict[str, object] | None = None
) -> tuple[nn.Module, dict[str, Tensor]]:
    model, masks = make(CASES["linear"])
    save(model, folder, masks, compressed=compressed, record=record)
    return model, masks


@both_forms
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_every_kind_of_module_in_every_type_comes_back_bit_for_bit(
    case: Case, dtype: torch.dtype, compressed: bool, tmp_path: Path
) -> None:
    model, masks = make(case)
    model.to(dtype)
    save(model, tmp_path / "m", masks, compressed=compressed)
    fresh = seeded(case.build, 99).to(dtype)
    saved = load(tmp_path / "m", fresh)
    assert saved.pruned == sum(int(mask.sum()) for mask in masks.values())
    for name, value in model.state_dict().items():
        assert same_bits(fresh.state_dict()[name], value), name
    assert saved.masks.keys() == masks.keys()
    assert all(torch.equal(saved.masks[name], mask) for name, mask in masks.items())


@pytest.mark.parametrize("sparsity", [0.5, 0.8, 0.9, 0.95, 0.98])
@pytest.mark.parametrize("network", ["mlpnet", "resnet20", "cifarnet"])
def test_compressed_is_within_a_tenth_of_a_bit_a_weight_and_the_values(
    network: str, sparsity: float, tmp_path: Path
) -> None:
    result = brainsurgeon.prune(build(network), _some(network), sparsity, "mp", num_gradients=1, progress=False)
    result.save(tmp_path / "dense")
    result.save(tmp_path / "compressed", compressed=True)
    size = (tmp_path / "compressed" / "model.compressed.safetensors").stat().st_size
    pruned_names = set(result.masks)
    others = sum(v.numel() * v.element_size() for n, v in result.model.state_dict().items() if n not in pruned_names)
    ideal = result.size / 8 + 4 * (result.size - result.pruned) + others
    assert size <= 1.1 * ideal
    assert size < (tmp_path / "dense" / "model.safetensors").stat().st_size


def _some(network: str) -> tuple[Tensor, Tensor]:
    shape = (1, 28, 28) if network == "mlpnet" else (3, 32, 32)
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])


def test_the_dense_file_is_a_plain_state_dict(tmp_path: Path) -> None:
    """Anything that reads safetensors can use it."""
    model, _ = tiny(tmp_path / "m", compressed=False)
    fresh = CASES["linear"].model()
    fresh.load_state_dict(load_file(tmp_path / "m" / "model.safetensors"))
    assert same_bits(fresh.get_parameter("0.weight"), model.get_parameter("0.weight"))


def test_shared_weights_are_stored_once(tmp_path: Path) -> None:
    model, masks = make(CASES["tied"])
    save(model, tmp_path / "m", masks, compressed=True)
    names = load_file(tmp_path / "m" / "model.compressed.safetensors").keys()
    assert "embedding.weight::values" in names
    assert not [name for name in names if name.startswith("out")]
    fresh = seeded(Tied, 5)
    load(tmp_path / "m", fresh)
    assert fresh.get_parameter("out.weight") is fresh.get_parameter("embedding.weight")
    assert same_bits(fresh.get_parameter("out.weight"), model.get_parameter("embedding.weight"))


@both_forms
def test_the_record_comes_back(compressed: bool, tmp_path: Path) -> None:
    tiny(tmp_path / "m", compressed, {"note": "ours", "numbers": [1, 2.5]})
    assert read(tmp_path / "m").record == {"note": "ours", "numbers": [1, 2.5]}
    assert json.loads((tmp_path / "m" / "result.json").read_text())["note"] == "ours"


def test_masks_default_to_the_zeros(tmp_path: Path) -> None:
    model, masks = make(CASES["linear"])
    save(model, tmp_path / "m", compressed=True)
    assert all(torch.equal(read(tmp_path / "m").masks[name], mask) for name, mask in masks.items())


def test_weights_that_are_not_zero_are_not_saved_as_pruned(tmp_path: Path) -> None:
    model, masks = make(CASES["linear"])
    nn.init.ones_(model.get_parameter("0.weight"))
    with pytest.raises(BrainsurgeonError, match="are no longer zero"):
        save(model, tmp_path / "m", masks, compressed=True)
    assert not (tmp_path / "m").exists()


def test_a_model_that_does_not_fit_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    tiny(tmp_path / "m", compressed=True)
    for model, words in [
        (nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)), "the shapes differ for .*0.weight"),
        (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), nn.Linear(3, 3)), "it lacks .*3.weight"),
        (nn.Sequential(nn.Linear(6, 8)), "the network has no .*2.weight"),
        (CASES["linear"].model().double(), r"as torch.float32, the model as torch.float64: convert the model first"),
    ]:
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with pytest.raises(BrainsurgeonError, match=words):
            load(tmp_path / "m", model)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_folders_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no folder"):
        read(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="found neither, so it is unfinished"):
        read(tmp_path / "empty")
    tiny(tmp_path / "m", compressed=False, record={"a": 1})
    (tmp_path / "m" / "result.json").write_text('{"a": 2}')
    with pytest.raises(FileError, match="has been changed since it was saved"):
        read(tmp_path / "m")
    (tmp_path / "m" / "result.json").unlink()
    with pytest.raises(FileError, match=r"result\.json is missing"):
        read(tmp_path / "m")
    (tmp_path / "m" / "masks.safetensors").unlink()
    with pytest.raises(FileError, match=r"there is no file .*masks\.safetensors"):
        read(tmp_path / "m")


def test_the_masks_of_another_model_are_refused(tmp_path: Path) -> None:
    tiny(tmp_path / "one", compressed=False)
    model, _ = make(CASES["linear"], share=0.2)
    save(model, tmp_path / "two")
    (tmp_path / "two" / "masks.safetensors").replace(tmp_path / "one" / "masks.safetensors")
    with pytest.raises(FileError, match="belongs to another model"):
        read(tmp_path / "one")


def test_counts_are_verified_against_the_record(tmp_path: Path) -> None:
    tiny(tmp_path / "m", compressed=True, record={"pruned": 5})
    with pytest.raises(FileError, match="the record counts 5 pruned weights, the masks"):
        read(tmp_path / "m")


def test_a_plain_checkpoint_is_named_as_such(tmp_path: Path) -> None:
    from brainsurgeon.files.checkpoint import save_checkpoint

    save_checkpoint(nn.Linear(2, 2), tmp_path / "model.safetensors")
    with pytest.raises(FileError, match=r"was not written by brainsurgeon.*load_checkpoint"):
        read(tmp_path)


def test_a_later_version_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brainsurgeon.files.sealed.VERSION", 2)
    tiny(tmp_path / "m", compressed=True)
    monkeypatch.undo()
    with pytest.raises(FileError, match="is of version 2; this release reads version 1"):
        read(tmp_path / "m")


def hostile(
    shapes: object, kept: Tensor, values: Tensor, **more: object
) -> tuple[dict[str, Tensor], dict[str, object]]:
    return {"w::kept": kept, "w::values": values}, {"shapes": shapes, **more}


BYTES = torch.tensor([255, 1], dtype=torch.uint8)


@pytest.mark.parametrize(
    "made",
    [
        hostile({"w": [9]}, BYTES, torch.ones(8)),  # a value too few
        hostile({"w": [9]}, BYTES, torch.ones(9, 1)),
        hostile({"w": [7]}, BYTES, torch.ones(9)),
        hostile({"w": [-9]}, BYTES, torch.ones(9)),
        hostile({"w": [9.0]}, BYTES, torch.ones(9)),
        hostile({"w": [True]}, BYTES, torch.ones(9)),
        hostile({"w": "9"}, BYTES, torch.ones(9)),
        hostile({"w": [2**40, 2**40]}, BYTES, torch.ones(9)),  # would fill the memory
        hostile({"w": [2**62]}, BYTES, torch.ones(9)),
        hostile({"v": [9]}, BYTES, torch.ones(9)),
        hostile({}, BYTES, torch.ones(9)),
        hostile(None, BYTES, torch.ones(9)),
        hostile({"w": [9]}, BYTES.float(), torch.ones(9)),
        hostile({"w": [9]}, BYTES, torch.ones(9), tied={"v": "u"}),
        hostile({"w": [9]}, BYTES, torch.ones(9), tied={"w": "w"}),
        hostile({"w": [9]}, BYTES, torch.ones(9), tied={"v": ["w"]}),
        hostile({"w": [9]}, BYTES, torch.ones(9), tied=3),
    ],
    ids=range(17),
)
def test_a_well_sealed_lie_is_refused(made: tuple[dict[str, Tensor], dict[str, object]], tmp_path: Path) -> None:
    """The checksum is right, for whoever writes a hostile file can compute it; what it says is not."""
    write_sealed(made[0], tmp_path / "model.compressed.safetensors", "compressed", made[1])
    with pytest.raises(FileError):
        read(tmp_path)


def test_the_honest_version_of_these_lies_is_read(tmp_path: Path) -> None:
    stored, info = hostile({"w": [9]}, BYTES, torch.ones(9))
    write_sealed(stored, tmp_path / "model.compressed.safetensors", "compressed", info)
    assert torch.equal(read(tmp_path).state["w"], torch.ones(9))


def test_what_cannot_be_stored_is_said(tmp_path: Path) -> None:
    class Odd(nn.Linear):
        def get_extra_state(self) -> object:
            return {"code": "anything"}

        def set_extra_state(self, state: object) -> None:
            assert state == {"code": "anything"}

    model, other = Odd(3, 3), Odd(3, 3)
    set_zeros(model, {"weight": torch.eye(3, dtype=torch.bool)})
    for number, compressed in enumerate((False, True)):  # what is no tensor is the model's own
        save(model, tmp_path / str(number), compressed=compressed)
        load(tmp_path / str(number), other)
        assert torch.equal(other.weight, model.weight)
    model.register_buffer("near", torch.eye(3).to_sparse())
    with pytest.raises(FileError, match=r"'near' must be a plain tensor to be saved, got a torch\.sparse_coo tensor"):
        save(model, tmp_path / "m")


def test_a_small_file_must_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(tmp_path / "m", compressed=True)
    save_masks({"w": torch.zeros(10_000, dtype=torch.bool)}, tmp_path / "masks")
    monkeypatch.setattr("brainsurgeon.files.bits.EXPANSION", 2)
    read(tmp_path / "m")  # as long as it is small, it may be anything
    load_masks(tmp_path / "masks")
    monkeypatch.setattr("brainsurgeon.files.bits.FREELY", 100)
    with pytest.raises(FileError, match="would expand from"):
        read(tmp_path / "m")
    with pytest.raises(FileError, match="would expand from"):
        load_masks(tmp_path / "masks")


def test_a_dense_file_whose_pruned_weights_are_not_zero_is_refused(tmp_path: Path) -> None:
    """Well sealed, with the right masks beside it: the count in the weights themselves decides."""
    _, masks = tiny(tmp_path / "m", compressed=False)
    path = tmp_path / "m" / "model.safetensors"
    state, info, _ = read_sealed(path, "dense")
    state["0.weight"][masks["0.weight"]] = 1e-9
    write_sealed(state, path, "dense", info)
    with pytest.raises(FileError, match=r"weights of '0\.weight' that the mask removes are not zero"):
        read(tmp_path / "m")


def test_a_file_of_another_kind_is_named_as_such(tmp_path: Path) -> None:
    save_masks({"w": torch.zeros(3, dtype=torch.bool)}, tmp_path / "model.compressed.safetensors")
    with pytest.raises(FileError, match="holds 'masks', expected 'compressed'"):
        read(tmp_path)


def test_a_place_is_checked_without_a_trace(tmp_path: Path) -> None:
    check_place(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="is a file: give a new folder"):
        check_place(tmp_path / "file")
    with pytest.raises(BrainsurgeonError, match="cannot write to"):
        check_place(tmp_path / "file" / "below")
    with pytest.raises(FileError, match="is not empty"):
        check_place(tmp_path)

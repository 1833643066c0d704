"""Checkpoints are read safely, unwrapped, and loaded strictly."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import prune

from brainsurgeon.files.checkpoint import load_checkpoint, read_state_dict, save_checkpoint
from brainsurgeon.files.torch_files import CheckpointError
from brainsurgeon.paper.models import build

SHARED = Path(__file__).parents[3] / "shared" / "checkpoints"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the shared checkpoints are not in {SHARED}")


@pytest.mark.parametrize("suffix", [".pt", ".legacy", ".safetensors"])
def test_a_truncated_file_is_refused_with_its_name(tmp_path: Path, model: nn.Module, suffix: str) -> None:
    path = tmp_path / f"cut{suffix}"
    if suffix == ".safetensors":
        save_file(model.state_dict(), path)
    else:
        torch.save(model.state_dict(), path, _use_new_zipfile_serialization=suffix == ".pt")
    content = path.read_bytes()
    for kept in (len(content) - 40, len(content) // 2, 10, 0):
        path.write_bytes(content[:kept])
        with pytest.raises(CheckpointError, match="cut"):
            read_state_dict(path)


@pytest.mark.parametrize("wrapper", ["state_dict", "model_state_dict", "model", None])
def test_wrappings_are_taken_off(tmp_path: Path, wrapper: str | None) -> None:
    weight = torch.randn(3, 4)
    state = {"module.fc._layer.weight": weight, "module.fc._mask": torch.ones(3, 4), "epoch": 3}
    torch.save({wrapper: state} if wrapper else state, tmp_path / "a.pt")
    found = read_state_dict(tmp_path / "a.pt")
    assert list(found) == ["fc.weight"]
    assert torch.equal(found["fc.weight"], weight)


def test_a_pruned_pair_becomes_the_pruned_weight(tmp_path: Path) -> None:
    layer = nn.Sequential(nn.Linear(4, 3, bias=False))
    prune.l1_unstructured(layer[0], "weight", 6)
    torch.save(layer.state_dict(), tmp_path / "pruned.pt")
    assert torch.equal(read_state_dict(tmp_path / "pruned.pt")["0.weight"], layer[0].weight)


@pytest.mark.parametrize("first", ["aux_head", "body.head"])
def test_each_pruned_pair_has_its_own_mask(tmp_path: Path, first: str) -> None:
    """The end of one layer's name is the whole of another's."""

    def network() -> nn.Module:
        body = nn.ModuleDict({"head": nn.Linear(8, 4)})
        return nn.ModuleDict({"aux_head": nn.Linear(8, 4), "body": body, "head": nn.Linear(8, 4)})

    pruned, again = network(), network()
    for name in (first, "head"):
        prune.l1_unstructured(pruned.get_submodule(name), "weight", 0.5)
    torch.save(pruned.state_dict(), tmp_path / "a.pt")
    load_checkpoint(again, tmp_path / "a.pt")
    for name in ("aux_head", "body.head", "head"):
        assert torch.equal(again.get_submodule(name).weight, pruned.get_submodule(name).weight), name  # type: ignore[arg-type]


def test_what_is_saved_comes_back_bit_for_bit(tmp_path: Path, model: nn.Module) -> None:
    save_checkpoint(model, tmp_path / "a.safetensors", {"note": "a test"})
    other = load_checkpoint(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), tmp_path / "a.safetensors")
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_batch_norm_counters_may_be_left_out(tmp_path: Path, model: nn.Module) -> None:
    state = {n: v for n, v in model.state_dict().items() if not n.endswith("num_batches_tracked")}
    save_file(state, tmp_path / "a.safetensors")
    load_checkpoint(model, tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"0.weight": torch.ones(3, 4)}, r"it lacks 0\.bias"),
        ({"0.weight": torch.ones(3, 4), "0.bias": torch.ones(3), "x": torch.ones(1)}, "the network has no x"),
        ({"0.weight": torch.ones(4, 3), "0.bias": torch.ones(3)}, r"network \(3, 4\), file \(4, 3\)"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, state: dict[str, torch.Tensor], message: str) -> None:
    save_file(state, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(nn.Sequential(nn.Linear(4, 3)), tmp_path / "a.safetensors")


def test_a_file_without_tensors_says_what_it_holds(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="the keys epoch"):
        read_state_dict(tmp_path / "a.pt")
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*absent\.pt"):
        read_state_dict(tmp_path / "absent.pt")


@needs_shared
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mlpnet", "mnist_25_epoch_93.97.ckpt"),
        ("resnet20", "resnet20_cifar10.pth.tar"),
        ("mobilenet-0.75", "mobilenet_v1_0.75_224_imagenet.safetensors"),
    ],
)
def test_the_papers_checkpoints_fit_our_networks(name: str, file: str) -> None:
    load_checkpoint(build(name), SHARED / file)

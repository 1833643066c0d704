"""Models that accelerate has spread, and what cannot be followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.language import head_of, perplexity
from brainsurgeon.network.held import held_in
from brainsurgeon.network.spread import holders, is_dispatched, taken_over

accelerate = pytest.importorskip("accelerate")
pytest.importorskip("transformers")
from language_folders import small_model, write_folder  # noqa: E402
from launching import launch  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

SPLIT = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.layers.0": "cpu", "model.norm": "disk"}


def tokens(count: int = 24) -> Tensor:
    return torch.randint(40, (count, 12), generator=torch.Generator().manual_seed(3))


def prune(model: nn.Module, **settings: Any) -> brainsurgeon.PruningResult:
    return brainsurgeon.prune(model, tokens(), 0.5, "layerwise", "next_token", exclude=head_of(model), **settings)


@pytest.fixture(scope="module")
def expected() -> brainsurgeon.PruningResult:
    return prune(small_model())


def spread(way: str, place: Path) -> nn.Module:
    model = small_model()
    if way == "one device":
        return accelerate.dispatch_model(model, {"": "cpu"}, force_hooks=True)
    if way == "cpu offload":
        return accelerate.cpu_offload(model, torch.device("cpu"))
    if way == "disk offload":
        return accelerate.disk_offload(model, str(place / "offload"), torch.device("cpu"))
    split = SPLIT | {"model.layers.1": "disk", "model.layers.2": "disk", "lm_head": "disk"}
    if way == "split":
        return accelerate.dispatch_model(model, split, main_device="cpu", offload_dir=str(place / "offload"))
    folder = write_folder(place / "dense", model)
    return AutoModelForCausalLM.from_pretrained(folder, device_map=split, offload_folder=str(place / "offload")).eval()


@pytest.mark.parametrize("way", ["one device", "cpu offload", "disk offload", "split", "from_pretrained"])
def test_a_spread_model_is_pruned_as_a_plain_one(
    way: str, tmp_path: Path, expected: brainsurgeon.PruningResult
) -> None:
    model = spread(way, tmp_path)
    assert is_dispatched(model)
    before = {file: file.read_bytes() for file in (tmp_path / "dense").glob("*.safetensors")}
    forwards = {module: module.__dict__.get("forward") for module in model.modules()}
    found = prune(model, in_place=True)
    assert (found.pruned, found.loss_after) == (expected.pruned, pytest.approx(expected.loss_after, abs=1e-9))
    assert all(torch.equal(found.masks[name], mask) for name, mask in expected.masks.items())
    assert {module: module.__dict__.get("forward") for module in model.modules()} == forwards
    assert not held_in(model)
    with torch.no_grad():  # through accelerate's own hooks, which read what was written back
        pair = model(tokens(4)).logits, expected.model(tokens(4)).logits
    assert torch.equal(*pair)
    assert {file: file.read_bytes() for file in before} == before, "the original was written to"


def test_a_model_on_one_device_may_be_copied(tmp_path: Path, expected: brainsurgeon.PruningResult) -> None:
    model = spread("one device", tmp_path)
    dense = perplexity(small_model(), tokens(4))
    found = prune(model)
    assert found.loss_after == expected.loss_after
    assert perplexity(model, tokens(4)) == pytest.approx(dense)


def test_what_is_offloaded_is_neither_copied_nor_pruned_by_other_methods(tmp_path: Path) -> None:
    model = spread("cpu offload", tmp_path)
    with pytest.raises(BrainsurgeonError, match=r"where accelerate keeps them .* prune it in place"):
        prune(model)
    with pytest.raises(BrainsurgeonError, match=r"method 'mp' needs all of them at once"):
        brainsurgeon.prune(model, None, 0.5, "mp", in_place=True)


def test_hooks_are_back_after_an_error(tmp_path: Path) -> None:
    model = spread("disk offload", tmp_path)
    forwards = {module: module.__dict__.get("forward") for module in model.modules()}
    with pytest.raises(ZeroDivisionError), taken_over(model):
        raise ZeroDivisionError
    assert {module: module.__dict__.get("forward") for module in model.modules()} == forwards
    assert model(tokens(2)).logits.isfinite().all()


def test_weights_in_the_models_own_files_need_an_offload_folder(tmp_path: Path) -> None:
    model = spread("from_pretrained", tmp_path)
    for module in model.modules():
        hook = getattr(module, "_hf_hook", None)
        while hasattr(weights := getattr(hook, "weights_map", None), "dataset"):
            hook = type("Hook", (), {"weights_map": weights.dataset})
        if hasattr(weights, "save_folder"):
            weights.save_folder = None
    with pytest.raises(BrainsurgeonError, match="give accelerate an offload folder"):
        holders(model)


def test_a_model_in_shards_is_pruned_as_a_plain_one_on_two_ranks(tmp_path: Path) -> None:
    program = Path(__file__).parent.parent / "helpers" / "shards.py"
    assert launch(program, tmp_path) == [0, 0]
    assert len(list(tmp_path.glob("done-*"))) == 2


def test_what_cannot_be_followed_is_refused_at_once() -> None:
    class FullyShardedDataParallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

    data = (torch.randn(20, 3), torch.randint(3, (20,)))
    with pytest.raises(BrainsurgeonError, match="fully_shard"):
        brainsurgeon.prune(FullyShardedDataParallel(), data, 0.5, "layerwise")
    partitioned = nn.Linear(3, 3)
    partitioned.weight.ds_id = 0
    with pytest.raises(BrainsurgeonError, match="DeepSpeed"):
        brainsurgeon.prune(partitioned, data, 0.5, "layerwise")
    with pytest.raises(BrainsurgeonError, match="meta device"):
        brainsurgeon.prune(nn.Linear(3, 3, device="meta"), data, 0.5, "layerwise")

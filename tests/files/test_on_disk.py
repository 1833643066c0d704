"""A model that stays in its files is pruned to the bits that a model in memory is, with one block there at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files import FileError
from brainsurgeon.files import on_disk as module
from brainsurgeon.files.language import head_of, load_language_model, perplexity, read_tokens
from brainsurgeon.files.on_disk import InFile, copy_folder, load_on_disk, read_header
from brainsurgeon.network.held import held_in, largest_unit, value_of

pytest.importorskip("transformers")
from language_folders import small_model, write_folder, write_text
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("dense") / "llama", small_model())


def tokens(count: int = 24) -> Tensor:
    return torch.randint(40, (count, 12), generator=torch.Generator().manual_seed(3))


def prune(model: nn.Module, **settings: Any) -> brainsurgeon.PruningResult:
    given = {"method": "layerwise", "loss": "next_token", "exclude": head_of(model), **settings}
    return brainsurgeon.prune(model, tokens(), 0.5, **given)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("llama", {"budget": "global"}),
        ("llama tied", {"budget": "uniform", "pattern": "2:4"}),
        ("gpt2", {"budget": "uniform", "method": "sparsegpt"}),
        ("llama", {"exclude": None, "include": "model.embed_tokens", "budget": "uniform", "costs": "none"}),
        ("bfloat16", {"budget": "global"}),
    ],
)
def test_masks_and_weights_are_those_of_a_run_in_memory(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = small_model("gpt2" if kind == "gpt2" else "llama", tied=kind == "llama tied")
    model = model.to(torch.bfloat16) if kind == "bfloat16" else model
    source = write_folder(tmp_path / "dense", model)
    assert len(list(source.glob("*.safetensors"))) > 1
    if "include" in settings:  # a layer that is no linear map goes by magnitude, beside one that is
        settings = {**settings, "include": ["model.embed_tokens", "model.layers.0.mlp", "model.layers.1.mlp"]}
    dense, _ = load_language_model(source)
    expected = prune(dense, **settings)
    before = {file.name: file.read_bytes() for file in source.iterdir()}
    on_disk, _ = load_language_model(source, on_disk=tmp_path / "pruned")
    found = prune(on_disk, in_place=True, **settings)
    assert (found.pruned, found.loss_before, found.loss_after) == (
        expected.pruned,
        expected.loss_before,
        expected.loss_after,
    )
    assert found.notes == expected.notes
    assert list(found.masks) == list(expected.masks)
    assert all(torch.equal(found.masks[name], mask) for name, mask in expected.masks.items())
    read, _ = load_language_model(tmp_path / "pruned")
    state = read.state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.model.state_dict().items())
    assert {file.name: file.read_bytes() for file in source.iterdir()} == before, "the original was written to"


def test_no_more_than_one_part_is_in_memory_at_a_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_folder(tmp_path / "deep", small_model(blocks=8))
    model = load_on_disk(source, tmp_path / "pruned")
    limit, whole = largest_unit(model), sum(p.nbytes for p in model.parameters())
    assert 4 * limit < whole
    alive, peaks = dict[int, int](), [0]
    own = InFile.fetch

    def fetch(self: InFile) -> Tensor:
        found = own(self)
        storage = found.untyped_storage()
        key = storage.data_ptr()
        alive[key] = storage.nbytes()
        weakref.finalize(storage, alive.pop, key, None)
        peaks.append(sum(alive.values()))
        return found

    monkeypatch.setattr(InFile, "fetch", fetch)
    prune(model, in_place=True, budget="global")
    assert 0.5 * limit < max(peaks) <= limit


def test_a_run_that_is_killed_goes_on_to_the_same_bits(folder: Path, tmp_path: Path) -> None:
    class Store:
        spent = 0.0

        def __init__(self) -> None:
            self.parts: dict[int, dict[str, Tensor]] = {}
            self.limit = 2

        def load_part(self, number: int) -> dict[str, Tensor] | None:
            return self.parts.get(number)

        def save_part(self, number: int, tensors: dict[str, Tensor]) -> None:
            if number >= self.limit:
                raise KeyboardInterrupt
            self.parts[number] = tensors

    def run(place: str, store: Any) -> brainsurgeon.PruningResult:
        model = load_on_disk(folder, tmp_path / place)
        surgery = brainsurgeon.Surgery(model, tokens(), "next_token", exclude=head_of(model))
        return surgery.prune(0.5, "layerwise", in_place=True, store=store)

    store = Store()
    with pytest.raises(KeyboardInterrupt):
        run("killed", store)
    assert len(store.parts) == 2
    store.limit = 99
    found, expected = run("resumed", store), run("at once", Store2())
    for name in expected.masks:
        assert torch.equal(found.masks[name], expected.masks[name])
        assert torch.equal(value_of(found.model, name), value_of(expected.model, name))


class Store2:
    """Keeps nothing."""

    spent = 0.0

    def load_part(self, number: int) -> None:
        return None

    def save_part(self, number: int, tensors: dict[str, Tensor]) -> None:
        pass


def test_perplexity_block_by_block_is_that_of_the_whole_model(folder: Path, tmp_path: Path) -> None:
    dense, tokenizer = load_language_model(folder)
    windows = read_tokens(tokenizer, write_text(tmp_path / "text.txt", 120), 12)
    on_disk, _ = load_language_model(folder, on_disk=True)
    assert perplexity(on_disk, windows) == pytest.approx(perplexity(dense, windows), rel=1e-6)
    assert all(parameter.is_meta for parameter in on_disk.parameters())


def test_what_needs_the_whole_model_is_refused_in_words(folder: Path, tmp_path: Path) -> None:
    model = load_on_disk(folder, tmp_path / "pruned")
    with pytest.raises(BrainsurgeonError, match=r"method 'cbs' needs all of them at once: take a layer-wise method"):
        prune(model, method="cbs", in_place=True)
    with pytest.raises(BrainsurgeonError, match=r"prune it in place \(in_place=True"):
        prune(model)
    with pytest.raises(FileError, match="it needs no saving"):
        prune(model, in_place=True).save(tmp_path / "saved")
    looked_at, _ = load_language_model(folder, on_disk=True)
    with pytest.raises(BrainsurgeonError, match="the original, which is not written to"):
        prune(looked_at, in_place=True)


def test_folders_that_cannot_be_read_part_by_part_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="must hold its weights as safetensors"):
        load_on_disk(tmp_path / "empty", tmp_path / "a")
    copy_folder(folder, tmp_path / "torn")
    shard = sorted((tmp_path / "torn").glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(FileError, match="no sound safetensors file"):
        load_on_disk(tmp_path / "torn", tmp_path / "b")
    shard.unlink()
    with pytest.raises(FileError, match=f"{shard.name!r} is missing"):
        load_on_disk(tmp_path / "torn", tmp_path / "c")
    with pytest.raises(FileError, match="not empty"):
        load_on_disk(folder, tmp_path / "torn")
    (tmp_path / "torn" / module.INDEX).write_text("[]")
    with pytest.raises(FileError, match="no index"):
        load_on_disk(tmp_path / "torn", tmp_path / "d")


def test_a_model_whose_weights_have_other_names_or_shapes_is_refused(folder: Path, tmp_path: Path) -> None:
    copy_folder(folder, tmp_path / "wider")
    config = json.loads((tmp_path / "wider" / "config.json").read_text())
    (tmp_path / "wider" / "config.json").write_text(json.dumps({**config, "intermediate_size": 32}))
    with pytest.raises(FileError, match=r"'model.layers.0.mlp.gate_proj.weight' .* of another shape"):
        load_on_disk(tmp_path / "wider", tmp_path / "a")


def test_a_full_disk_and_a_full_memory_are_told_before_they_are_full(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 10})()
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BrainsurgeonError, match="10 bytes are free"):
        load_on_disk(folder, tmp_path / "pruned")
    assert not (tmp_path / "pruned").exists()
    monkeypatch.setattr("brainsurgeon.files.language.available_bytes", lambda _: 10)
    with pytest.raises(BrainsurgeonError, match="--on-disk"):
        load_language_model(folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_one_tensor_is_read_and_written_where_it_lies(dtype: torch.dtype, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {"a": torch.randn(3, 5).to(dtype), "b": torch.randn(4).to(dtype), "none": torch.zeros(0, 2, dtype=dtype)}
    save_file(tensors, tmp_path / "file.safetensors")
    found = read_header(tmp_path / "file.safetensors")
    assert all(torch.equal(found[name].fetch(), value) for name, value in tensors.items())
    found["a"].put(tensors["a"].T.contiguous().T * 2)
    read = load_file(tmp_path / "file.safetensors")
    assert torch.equal(read["a"], tensors["a"] * 2)
    assert torch.equal(read["b"], tensors["b"])
    found["a"].put(torch.arange(15.0, dtype=torch.float64).view(3, 5))  # worked on in another type than the file's
    read = load_file(tmp_path / "file.safetensors")
    assert read["a"].flatten().tolist() == list(range(15))
    assert torch.equal(read["b"], tensors["b"])


def test_tied_weights_have_one_place_and_buffers_are_there(tmp_path: Path) -> None:
    model = load_on_disk(write_folder(tmp_path / "dense", small_model(tied=True)), None)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert len(held_in(model)) == len(list(model.parameters()))
    assert not any(buffer.is_meta for buffer in model.buffers())


PROGRAM = """
import sys
from pathlib import Path
import torch
import transformers.models.llama.modeling_llama
import brainsurgeon
from brainsurgeon.files.language import head_of
from brainsurgeon.files.on_disk import load_on_disk

def peak():  # of this process alone: what getrusage tells begins with its parent's
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024

torch.set_num_threads(1)
small = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
brainsurgeon.prune(small, (torch.randn(64, 8), torch.randint(8, (64,))), 0.5, "wanda")  # what is imported late
before = peak()
model = load_on_disk(Path(sys.argv[1]), Path(sys.argv[2]))
words = torch.randint(40, (8, 16), generator=torch.Generator().manual_seed(0))
brainsurgeon.prune(model, words, 0.5, "wanda", "next_token", exclude=head_of(model), budget="uniform", in_place=True)
print(peak() - before)
"""


QUIET = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
"""What is freed goes back at once, so that the peak is what was needed, and not what the allocator kept."""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_the_peak_of_a_process_does_not_grow_with_the_blocks(tmp_path: Path) -> None:
    """Blocks with wide MLPs: the process grows by a few blocks and moments, in memory by more than the model."""

    def grown(blocks: int) -> tuple[int, int]:
        torch.manual_seed(0)
        sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 4, "num_hidden_layers": blocks}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=40, max_position_embeddings=32, **sizes))
        model.save_pretrained(tmp_path / f"{blocks}", max_shard_size="40MB")
        size = sum(parameter.nbytes for parameter in model.parameters())
        del model
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / f"{blocks}"), str(tmp_path / f"pruned-{blocks}")]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | QUIET)
        assert done.returncode == 0, done.stderr
        return int(done.stdout), size

    (few, _), (many, size) = grown(4), grown(28)
    assert few > 0
    assert many < 0.5 * size
    assert many < 1.3 * few

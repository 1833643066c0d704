"""The record of a run: counts, words and files."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from brainsurgeon import BrainsurgeonError, save
from brainsurgeon.events import Event
from brainsurgeon.pruning.result import LayerRecord, PruningResult


def make_result() -> PruningResult:
    model = nn.Linear(4, 3)
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[0] = True
    with torch.no_grad():
        model.weight[mask] = 0
    return PruningResult(
        model,
        {"weight": mask},
        (LayerRecord("weight", (3, 4), 4, 12),),
        0.3,
        "mp",
        None,
        0.5,
        0.75,
        {"gradients": 1.0, "selection": 0.5},
        {"seed": 0},
        ("something to know",),
        (Event("search", 2, 5, {"cost": 0.25}),),
    )


def test_the_counts_add_up() -> None:
    result = make_result()
    assert (result.pruned, result.size, result.achieved) == (4, 12, 4 / 12)
    assert result.layers[0].sparsity == 4 / 12


def test_the_summary_says_what_happened() -> None:
    summary = make_result().summary()
    for words in (
        "mp: 4 of 12 weights pruned",
        "sample loss 0.5 before, 0.75 after",
        "weight",
        "something to know",
    ):
        assert words in summary


def test_the_record_is_json_with_layers_and_trace() -> None:
    record = json.loads(make_result().to_json())
    assert record["layers"] == [{"name": "weight", "shape": [3, 4], "pruned": 4, "size": 12}]
    assert record["trace"] == [{"stage": "search", "done": 2, "cost": 0.25}]
    assert record["notes"] == ["something to know"]


def test_a_diverged_loss_is_null_in_the_record() -> None:
    """JSON has no infinity."""
    result = dataclasses.replace(make_result(), loss_after=float("inf"), predicted_change=float("nan"))
    record = json.loads(result.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (record["loss_before"], record["loss_after"], record["predicted_change"]) == (0.5, None, None)


def test_saving_writes_the_model_its_masks_and_the_record(tmp_path: Path) -> None:
    result = make_result()
    folder = result.save(tmp_path / "new" / "run")
    assert sorted(path.name for path in folder.iterdir()) == [
        "masks.safetensors",
        "model.safetensors",
        "result.json",
    ]
    assert torch.equal(load_file(folder / "masks.safetensors")["weight"], result.masks["weight"])
    assert torch.equal(load_file(folder / "model.safetensors")["weight"], result.model.state_dict()["weight"])
    assert json.loads((folder / "result.json").read_text()) == json.loads(result.to_json())


@pytest.mark.parametrize("compressed", [False, True])
def test_a_saved_result_is_loaded_whole(tmp_path: Path, compressed: bool) -> None:
    result = make_result()
    result.save(tmp_path / "run", compressed)
    model = nn.Linear(4, 3)
    loaded = PruningResult.load(tmp_path / "run", model)
    assert loaded.model is model
    assert loaded.to_dict() == result.to_dict()
    assert loaded.trace[0].values == {"cost": 0.25}
    assert torch.equal(loaded.masks["weight"], result.masks["weight"])
    for name, value in result.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


def test_a_folder_without_the_record_of_a_run_is_no_result(tmp_path: Path) -> None:
    result = make_result()
    save(result.model, tmp_path / "run", result.masks, record={"layers": [{"name": "weight"}]})
    with pytest.raises(BrainsurgeonError, match=r"no record of a run.*brainsurgeon\.load reads its weights"):
        PruningResult.load(tmp_path / "run", nn.Linear(4, 3))
    other = dataclasses.replace(result, layers=(LayerRecord("weight", (3, 4), 4, 13),))
    other.save(tmp_path / "other")
    with pytest.raises(BrainsurgeonError, match="its layers are not those of the masks"):
        PruningResult.load(tmp_path / "other", nn.Linear(4, 3))


def test_saving_refuses_a_folder_that_holds_anything(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty"):
        make_result().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

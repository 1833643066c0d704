"""One method at one sparsity: there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import torch
from killing import SETTINGS, TARGET, outcome
from safetensors.torch import load_file

from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.runs import RunFolder, execute
from brainsurgeon.app.target import load_target
from brainsurgeon.files.checkpoint import load_checkpoint


def test_a_cell_whose_model_is_gone_is_done_again(tmp_path: Path) -> None:
    run = RunFolder.create(make_recipe({**SETTINGS, "method": "mp", "sparsity": 0.5}), tmp_path / "run")
    cell = execute(run)[0]
    before = outcome(run)
    (cell.folder / "model.safetensors").unlink()
    assert not cell.finished
    execute(run)
    assert outcome(run) == before


def test_sparsities_that_are_close_have_cells_of_their_own(tmp_path: Path) -> None:
    close = [0.90000012, 0.90000042]
    run = RunFolder.create(make_recipe({**SETTINGS, "method": "mp", "sparsity": close}), tmp_path / "run")
    assert [cell.result()["sparsity"] for cell in execute(run)] == close


def test_what_is_saved_is_what_was_pruned(tmp_path: Path) -> None:
    """The model in the folder loads, and is zero exactly where its masks say, with the exact count."""
    run = RunFolder.create(make_recipe({**SETTINGS, "method": "cbs", "sparsity": 0.8}), tmp_path / "run")
    cell = execute(run)[0]
    model = load_checkpoint(load_target(TARGET).model, cell.folder / "model.safetensors")
    masks = load_file(cell.folder / "masks.safetensors")
    assert sum(int(mask.sum()) for mask in masks.values()) == cell.result()["pruned"] == 288
    for name, mask in masks.items():
        assert torch.equal(model.get_parameter(name) == 0, mask)

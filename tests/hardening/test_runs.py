"""Runs as strangers start them: models with zeros, shared storage, odd threads, failed starts, narrow terminals."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from staging import trained
from torch import nn

from brainsurgeon import BrainsurgeonError, prune
from brainsurgeon.app.cli import main
from brainsurgeon.app.recipe import RecipeError, make_recipe


@pytest.mark.parametrize("method", ["staged", "gradual", "auto"])
def test_a_model_that_has_zeros_already_is_pruned_to_the_exact_count(method: str) -> None:
    """Stages that remove what is zero anyhow change nothing, and are not the end of the run."""
    model, data = trained()
    half = prune(model, data, 0.5, "mp", progress=False)
    result = prune(half.model, data, 0.9, method, max_gradients=2000, progress=False)
    zeros = sum(int((result.model.get_parameter(name) == 0).sum()) for name in result.masks)
    size = sum(mask.numel() for mask in result.masks.values())
    assert zeros == result.pruned == -(-9 * size // 10)


def test_two_parameters_on_one_storage_are_refused_before_the_model_is_changed() -> None:
    flat = torch.randn(72)
    first, second = nn.Linear(6, 6, bias=False), nn.Linear(6, 12, bias=False)
    first.weight = nn.Parameter(flat[:36].view(6, 6))
    second.weight = nn.Parameter(flat.view(12, 6))
    model, data = nn.Sequential(first, second), (torch.randn(40, 6), torch.randint(12, (40,)))
    before = flat.clone()
    with pytest.raises(BrainsurgeonError, match=r"0\.weight.*1\.weight|storage|memory"):
        prune(model, data, 0.5, "cbs", num_gradients=20, progress=False, in_place=True)
    assert torch.equal(flat, before)


@pytest.mark.parametrize("threads", [100_000, 0, -1, "many"])
def test_a_number_of_threads_that_no_machine_has_is_refused(threads: object) -> None:
    with pytest.raises(RecipeError, match="threads"):
        make_recipe({"target": "demo", "sparsity": 0.5, "threads": threads})


@pytest.mark.parametrize("words", [["-m", "nothing"], ["-s", "1.5"], ["--set", "nothing=1"], ["--device", "cuda:99"]])
def test_a_start_that_fails_leaves_no_folder(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["prune", "demo", "-s", "0.5", "-m", "mp", *words, "-o", "run", "-q"]) not in (0, 70)
    assert main(["prune", "missing.py:model", "-s", "0.5", "-m", "mp", "-o", "run", "-q"]) == 1
    assert capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_narrow_terminal_cuts_no_name_and_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "a_layer_with_a_name_that_is_longer_than_most_terminals_are_wide_and_then_some_more"
    (tmp_path / "made.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef model():\n    made = nn.Sequential()\n"
        f"    made.add_module('{long}', nn.Linear(6, 5))\n    made.add_module('head', nn.Linear(5, 3))\n"
        "    return made, (torch.randn(40, 6), torch.randint(3, (40,)))\n"
    )
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["inspect", f"{tmp_path}/made.py:model", "-m", "mp", "-s", "0.5", "--no-time"]) == 0
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert f"{long}.weight" in "".join(row[1].strip() for row in rows)  # folded, not cut
    assert not any("…" in cell for row in rows for cell in row)

"""prune, compare, inspect, report and doctor, from the command line on a model of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from commands import TARGET
from safetensors.torch import save_file

from brainsurgeon.app.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["prune"], 2, "which model?"),
        (["prune", TARGET, "--set", "damping"], 2, "KEY=VALUE"),
        (["prune", TARGET, "-m", "cbs", "--set", "num_draw=3"], 1, "num_draws"),
        (["prune", "nothing.py:build"], 1, "there is no file"),
        (["prune", TARGET, "-m", "cbz"], 1, "unknown method 'cbz'"),
        (["prune", TARGET, "-s", "1.5"], 1, "should be less than 1"),
        (["prune", TARGET, "-m", "cbs", "--fisher", "true"], 1, "fisher says which labels"),
        (["prune", TARGET, "-m", "cbs", "--fisher", "exact", "--stages", "2"], 1, "fisher belongs to one-shot methods"),
        (["prune", TARGET, "--device", "gpu", "-o", "x"], 1, "device 'gpu' cannot be used here"),
        (["inspect", TARGET, "--device", "cuda:99"], 1, "device 'cuda:99' cannot be used here"),
        (["prune", "--resume", "nowhere"], 1, "not the folder of a run"),
        (["prune", "--resume", "x", "-s", "0.5"], 2, "leave out --sparsity"),
        (["prune", "--resume", "x", "--stages", "3"], 2, "leave out --stages"),
        (["compare", "--resume", "x", "-m", "mp"], 2, "leave out --method"),
        (["prune", TARGET, "--track", "paper", "-o", "x"], 1, "the trackers are: tensorboard"),
        (["prune", TARGET, "--checkpoint", "missing.safetensors", "-o", "x"], 1, "no checkpoint"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_status(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    err = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in err
    assert "Traceback" not in err


def test_completion_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out


def test_a_model_without_labels_goes_through_the_whole_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The dense model of the distance is the one of the checkpoint, also when the run is evaluated later."""
    (tmp_path / "plain.py").write_text(
        "import torch\nfrom torch import nn\n\n\n"
        "def model():\n"
        "    x = torch.randn(120, 6)\n"
        "    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), iter(x.split(20)), 'match', x[:40]\n"
    )
    other = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    save_file(other.state_dict(), tmp_path / "trained.safetensors")
    arguments = [f"{tmp_path}/plain.py:model", "--checkpoint", f"{tmp_path}/trained.safetensors", "-s", "0.5"]
    assert main(["inspect", *arguments, "-m", "cbs", "--sensitivity"]) == 0
    run = tmp_path / "run"
    assert main(["prune", *arguments, "-m", "layerwise", "-q", "-o", str(run)]) == 0
    dense = json.loads((run / "run.json").read_text())["dense"]
    pruned = json.loads((run / "result" / "measured.json").read_text())["scores"]
    assert dense == {"loss": 0.0}
    assert 0 < pruned["loss"] < 1
    capsys.readouterr()
    assert main(["evaluate", str(run), "--seconds", "0.01"]) == 0
    assert f"loss          {pruned['loss']:>14.4g}" in capsys.readouterr().out

"""prune, compare, inspect, report and doctor, from the command line on a model of one's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from brainsurgeon.app.cli import main

MODEL = Path(__file__).parent.parent / "runs" / "own_model.py"
TARGET = f"{MODEL}:build"
QUICK = ["-k", "60", "--set", "loss_samples=200", "--seed", "1", "--quiet"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_prune_leaves_everything_in_one_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", TARGET, "-m", "cbs", "-s", "0.8", "-o", "run", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "288 of 360 weights pruned" in out
    assert "accuracy:" in out
    names = {path.relative_to("run").as_posix() for path in Path("run").rglob("*") if path.is_file()}
    assert {
        "recipe.yaml",
        "run.json",
        "log.txt",
        "report.html",
        "result/model.safetensors",
        "result/masks.safetensors",
        "result/result.json",
    } <= names
    assert "done" in Path("run/log.txt").read_text()


def test_the_recipe_that_is_written_back_makes_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(
        yaml.safe_dump({"target": TARGET, "arguments": {"hidden": 10}, "sparsity": 0.7, "num_gradients": 40})
    )
    assert main(["prune", "-r", "mine.yaml", "--method", "wf", "--set", "loss_samples=100", "-o", "a", "-q"]) == 0
    assert main(["prune", "-r", "a/recipe.yaml", "-o", "b", "-q"]) == 0
    first, second = (json.loads(Path(folder, "result/result.json").read_text()) for folder in "ab")
    for record in (first, second):
        record.pop("seconds")
    assert first == second
    assert first["size"] == 150
    written = yaml.safe_load(Path("a/recipe.yaml").read_text())
    assert (written["method"], written["loss_samples"]) == ("wf", 100)
    assert "damping" not in written  # what nobody gave is the method's own, and stands in the record
    assert first["settings"]["method"]["damping"] == 1e-4


@pytest.mark.parametrize("fisher", ["sampled", "exact"])
def test_the_labels_of_the_gradients_are_an_option_and_are_written_down(fisher: str) -> None:
    assert main(["prune", TARGET, "-m", "wf", "--fisher", fisher, "-o", "run", *QUICK]) == 0
    assert yaml.safe_load(Path("run/recipe.yaml").read_text())["fisher"] == fisher
    assert main(["prune", "-r", "run/recipe.yaml", "-o", "again", "-q"]) == 0
    first, again = (json.loads(Path(folder, "result/result.json").read_text()) for folder in ("run", "again"))
    assert first["settings"]["method"]["fisher"] == fisher
    assert {**first, "seconds": 0} == {**again, "seconds": 0}


def test_compare_shows_one_table_and_keeps_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", TARGET, "-m", "mp", "-m", "cbs", "-s", "0.5", "-s", "0.8", "-o", "cmp", *QUICK]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "4 pruned models" in out
    assert Path("cmp/comparison.svg").read_text().startswith("<svg")
    assert sorted(path.name for path in Path("cmp/cells").iterdir()) == ["cbs@0.5", "cbs@0.8", "mp@0.5", "mp@0.8"]
    assert main(["compare", "--resume", "cmp", "-q"]) == 0
    assert capsys.readouterr().out == out
    assert main(arguments) == 1
    assert "--resume cmp" in capsys.readouterr().err


def test_report_writes_pictures_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL")
    main(["prune", TARGET, "-m", "mp", "-o", "one", *QUICK])
    main(["prune", TARGET, "-m", "wf", "-o", "two", *QUICK])
    assert main(["report", "one", "two", "-o", "both"]) == 0
    assert Path("both/report.html").is_file()
    found = {path.suffix for path in Path("both").rglob("*")}
    assert {".svg", ".png", ".csv", ".md", ".tex"} <= found
    assert main(["report", "nowhere"]) == 1
    assert "neither the folder of a run" in capsys.readouterr().err


def test_inspect_says_what_would_happen_and_does_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["inspect", TARGET, "-m", "cbs", "-s", "0.8", "-k", "50"]) == 0
    out = capsys.readouterr().out
    assert "288 of 360 weights" in out
    assert "left alone" in out  # the biases
    assert "gradients" in out.partition("Time")[2]
    assert not list(Path.cwd().iterdir())
    monkeypatch.setattr("brainsurgeon.pruning.fitting.available_bytes", lambda device: 1000)
    monkeypatch.setattr("brainsurgeon.app.forecast.available_bytes", lambda device: 1000)
    assert main(["inspect", TARGET, "--no-time"]) == 3
    assert "and 1000 bytes are free on cpu. Nothing that it can be told would make it fit" in capsys.readouterr().err
    assert main(["prune", TARGET, "-o", "run"]) == 3


def test_doctor_names_what_is_there_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for word in ("torch", "cpu", "threads", "highspy", "mnist", "GiB free"):
        assert word in out


def test_doctor_says_how_to_get_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every extra that it names is one of the package's."""
    from brainsurgeon.app.cli import doctor

    monkeypatch.setattr(doctor, "_version", lambda package: None)
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = {extra for extra, _ in (*doctor.EXTRAS.values(), *doctor.SOLVERS.values()) if extra}
    assert extras <= project["optional-dependencies"].keys()
    for extra in extras:
        assert f"pip install 'brainsurgeon[{extra}]'" in out


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
        (["prune", TARGET, "-m", "cbs", "--fisher", "exact", "--stages", "2"], 1, "fisher is of one-shot methods"),
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


def test_a_recipe_for_several_cells_is_not_pruned_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(f"target: {TARGET}\nsparsity: [0.5, 0.9]\n")
    assert main(["prune", "-r", "mine.yaml"]) == 2
    assert "compare" in capsys.readouterr().err


def test_log_lines_take_the_place_of_bars(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", TARGET, "-m", "cbs", "-o", "run", *QUICK[:-1]]) == 0
    err = capsys.readouterr().err
    assert "gradients: 60 of 60" in err
    assert "\x1b" not in err
    assert "gradients: 60 of 60" in Path("run/log.txt").read_text()


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    """Ctrl-C in the middle of very many draws: status 130, the way on, and a run that a resume would take up."""
    many = ["--set", "num_draws=1000000", "-m", "rmp"]
    child = subprocess.Popen(
        [sys.executable, "-m", "brainsurgeon", "prune", TARGET, "-o", "run", *many],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A shell that runs the tests in the background has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert child.stderr is not None
    for line in child.stderr:
        if "draws" in line:
            break
    child.send_signal(signal.SIGINT)
    rest = child.stderr.read()
    assert child.wait() == 130
    assert "Go on with: brainsurgeon prune --resume run" in rest
    assert "Traceback" not in rest
    assert "stopped: KeyboardInterrupt" in Path("run/log.txt").read_text()


def test_completion_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out


def test_starting_takes_well_under_a_second() -> None:
    """In seconds of the processor, so that a busy machine does not decide."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "brainsurgeon", "--help"], check=True, capture_output=True)
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system < 1.0


def test_names_of_layers_are_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.py").write_text(
        "import torch\nfrom torch import nn\n\n\n"
        "def model():\n"
        "    made = nn.Sequential()\n"
        "    made.add_module('a[/b]', nn.Linear(6, 5))\n"
        "    made.add_module('[red]c', nn.Linear(5, 3))\n"
        "    return made, (torch.randn(20, 6), torch.randint(3, (20,)))\n"
    )
    assert main(["inspect", f"{tmp_path}/odd.py:model", "--no-time", "-m", "mp"]) == 0
    shown = capsys.readouterr().out
    assert "a[/b].weight" in shown
    assert "[red]c.weight" in shown
    folder = str(tmp_path / "run[/b]")
    assert main(["prune", f"{tmp_path}/odd.py:model", "-m", "mp", "-s", "0.5", "-o", folder]) == 0
    out, err = capsys.readouterr()
    assert "a[/b].weight" in out
    assert "run[/b]" in err


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

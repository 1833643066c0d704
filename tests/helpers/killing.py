"""Runs that are killed and go on."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest
from commands import TARGET
from safetensors.torch import load_file

from brainsurgeon.app.runs import RunFolder, execute

SETTINGS = {
    "target": TARGET,
    "method": ["mp", "cbs-s", "cbs"],
    "sparsity": [0.5, 0.8],
    "num_gradients": 200,
    "seed": 3,
    "loss_samples": 400,
    "threads": 1,
}


FILES = ("model.safetensors", "masks.safetensors")


PROGRAM = """
import sys, time
from pathlib import Path
from brainsurgeon.app.runs import RunFolder, execute
print("ready", flush=True)
execute(RunFolder.open(Path(sys.argv[1])))
"""


def outcome(run: RunFolder) -> dict[str, bytes]:
    """Every weight and mask of a run, byte for byte (the order of a file's notes about itself is free)."""
    cells = run.cells()
    assert len(cells) == len(run.recipe.methods) * len(run.recipe.sparsities)
    return {
        f"{cell.name}/{file}/{name}": tensor.numpy().tobytes()
        for cell in cells
        for file in FILES
        for name, tensor in load_file(cell / file).items()
    }


def start(run: RunFolder) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(run.path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def execute_until(run: RunFolder, module: ModuleType, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute a run that dies right after a module of it has written so many files of tensors."""
    original, written = module.save_tensors, 0

    def dying(*arguments: object) -> None:
        nonlocal written
        original(*arguments)
        written += 1
        if written == moment:
            raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(module, "save_tensors", dying)
        with pytest.raises(SystemExit):
            execute(run)

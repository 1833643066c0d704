"""The Python of the README runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) >= 2
    generator = torch.Generator().manual_seed(0)
    names = {
        "model": torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)),
        "inputs": torch.randn(200, 8, generator=generator),
        "targets": torch.randint(3, (200,), generator=generator),
    }
    for block in blocks:
        exec(block, names)
    assert (tmp_path / "pruned-at-90" / "model.safetensors").is_file()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (Path(__file__).parent.parent / ".ci" / "run").read_text()
    command = "pip install -q -c constraints.txt -e '.[dev]'"
    assert command in README
    assert command in script.replace("pip install --quiet --disable-pip-version-check", "pip install -q")
    assert script.rstrip().endswith("pytest")

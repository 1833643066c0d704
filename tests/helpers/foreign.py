"""A model's file that says when it was run, and the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brainsurgeon.app.cli import main

MODEL = """
import torch, pathlib
{extra}
def build():
    pathlib.Path({marker!r}).write_text("ran")
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 6, generator=generator), torch.randint(3, (40,), generator=generator)
    torch.manual_seed(0)
    return torch.nn.Linear(6, 3), (x, y)
"""


def model_file(folder: Path, extra: str = "") -> tuple[Path, Path]:
    """Write the file; return it, and what it leaves when it is run."""
    marker = folder / "marker"
    path = folder / "mine.py"
    path.write_text(MODEL.format(marker=str(marker), extra=extra))
    return path, marker


def run(*arguments: Any) -> int:
    """Call the command, and return its status."""
    return main([str(argument) for argument in arguments])

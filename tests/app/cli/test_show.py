"""What is printed of a finished run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from brainsurgeon.app.cli import main
from brainsurgeon.app.cli.show import as_rich, say
from brainsurgeon.app.report.forms import Table

pytestmark = pytest.mark.usefixtures("elsewhere")


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


def test_a_table_of_words_is_drawn_with_its_best_in_bold_and_no_markup() -> None:
    words = Table(("layer", "[b]", "cbs"), (("[red]a", "1.0", "2.0"),), frozenset({(0, 2)}))
    console = Console(width=80, force_terminal=True, color_system="standard", file=io.StringIO())
    console.print(as_rich(words))
    drawn = console.file.getvalue()
    assert "[red]a" in drawn
    assert "[b]" in drawn
    assert "\x1b[1m2.0" in drawn
    assert "\x1b[1m1.0" not in drawn


def test_a_line_is_said_as_it_is() -> None:
    console = Console(width=20, file=io.StringIO())
    say(console, "a path [/b] :smile: " + "x" * 40)
    assert console.file.getvalue() == "a path [/b] :smile: " + "x" * 40 + "\n"

"""PNG by matplotlib: the drawing's size, the mask's pixels; a report without matplotlib."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from brainsurgeon.app.cli import main
from brainsurgeon.app.report import charts
from brainsurgeon.app.report.png import draw_png, mask_png, why_no_png


def test_a_drawing_is_twice_its_size_and_in_its_colours() -> None:
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    drawing = charts.bars("x", [("$a_1$ \\frac [/b]", 0.5, "50%", "")] * 3, "s0")
    picture = image.open(io.BytesIO(draw_png(drawing))).convert("RGB")
    assert picture.size == (2 * drawing.width, 2 * drawing.height)
    assert picture.getpixel((2 * 180, 2 * 14)) == (0x25, 0x63, 0xC9)
    assert picture.getpixel((2 * 330, 2 * 14)) == (0xDF, 0xE4, 0xEA)
    assert picture.getpixel((1, 1)) == (255, 255, 255)


def test_a_mask_has_one_pixel_a_weight() -> None:
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    mask = torch.rand(24, 3, 4, generator=torch.Generator().manual_seed(0)) < 0.7
    picture = image.open(io.BytesIO(mask_png(mask))).convert("RGBA")
    assert picture.size == (24, 12)  # 24 × 12 weights, laid on its side
    flat = mask.reshape(24, 12)
    for row in range(24):
        for column in range(12):
            assert (picture.getpixel((row, column))[3] == 0) == bool(flat[row, column])


def test_without_matplotlib_there_is_svg_and_a_word(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path / "run", ["a"], ["mp", "cbs"], [0.5, 0.9])
    find = importlib.util.find_spec
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(
        "brainsurgeon.app.report.png.find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    assert "brainsurgeon[plots]" in why_no_png()
    assert main(["report", str(folder), "-o", str(tmp_path / "out")]) == 0
    assert "No PNG: pictures as PNG, and of masks, need matplotlib" in capsys.readouterr().out
    assert list((tmp_path / "out" / "figures").glob("*.svg"))
    assert not list((tmp_path / "out" / "figures").glob("*.png"))
    assert "Pictures of the masks are left out" in (tmp_path / "out" / "report.html").read_text()

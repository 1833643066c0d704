"""Which layers a chart names, and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from brainsurgeon.app.report import read_record
from brainsurgeon.app.report.drawing import Drawing, Text
from brainsurgeon.app.report.pictures import MOST_LAYERS, layer_bars, run_time, traces

Make = Callable[..., Path]


def words(drawing: Drawing) -> list[str]:
    return [shape.words for shape in drawing.shapes if isinstance(shape, Text)]


def bars(make_run: Make, folder: Path, layers: list[str]) -> Drawing:
    return layer_bars(read_record([make_run(folder, layers, ["mp"], [0.9])]).outcomes[0])


def test_long_names_leave_out_what_they_share(make_run: Make, tmp_path: Path) -> None:
    names = [f"model.decoder.layers.{k}.{part}.weight" for k in (0, 1) for part in ("attention", "mlp")]
    assert words(bars(make_run, tmp_path / "a", names))[::2] == ["0.attention", "0.mlp", "1.attention", "1.mlp"]
    assert words(bars(make_run, tmp_path / "b", ["0.weight", "2.weight"]))[::2] == ["0.weight", "2.weight"]
    long = words(bars(make_run, tmp_path / "c", ["only." * 20 + "weight"]))[0]
    assert long.startswith("only.on")
    assert long.endswith("weight")
    assert len(long) == 22


def test_of_very_many_layers_the_largest_are_shown(make_run: Make, tmp_path: Path) -> None:
    drawing = bars(make_run, tmp_path / "run", [f"l{k}" for k in range(MOST_LAYERS + 5)])
    assert drawing.label == f"sparsity of the {MOST_LAYERS} largest layers"
    assert len(words(drawing)) == 2 * MOST_LAYERS


def test_the_time_goes_from_the_longest_down(make_run: Make, tmp_path: Path) -> None:
    outcome = read_record([make_run(tmp_path / "run", ["a"], ["mp"], [0.9])]).outcomes[0]
    assert words(run_time(outcome))[::2] == ["gradients", "search", "update"]
    assert words(run_time(outcome))[1] == "2.00 s  53%"
    assert [drawing.label for drawing in traces(outcome)] == [
        "objective of the search by step",
        "sample loss by step",
        "swaps taken by step",
    ]

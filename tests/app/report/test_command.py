"""The commands beside a report: names are printed as they are, costs are kept, runs of two models are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from brainsurgeon.app.cli import main
from brainsurgeon.app.cli.show import as_rich, show_comparison, show_result
from brainsurgeon.app.report.forms import Table
from brainsurgeon.app.runs import Cell, RunFolder

Make = Callable[..., Path]
MARKUP = "a[/b] [bold]x[/] :smile: \\"


def test_a_result_with_markup_in_its_names_is_shown(
    make_run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    folder = make_run(tmp_path / "[/b]run", [MARKUP, "b"], ["cbs"], [0.9], scores={MARKUP: 1.0})
    path = folder / "result" / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "notes": [f"note {MARKUP}"]}))
    show_result(RunFolder.open(folder), Cell("cbs", 0.9, folder / "result"))
    told = capsys.readouterr().out
    assert told.count(MARKUP) == 3
    assert "cbs at 0.9: 359 of 400 weights pruned" in told
    assert f"Report: {folder / 'report.html'}" in told


def test_a_comparison_with_markup_in_its_names_is_shown(
    make_run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path / "run", [MARKUP], ["mp", "cbs"], [0.5, 0.9], scores={MARKUP: 1.0})
    outside = tmp_path / "outside.svg"
    outside.write_text("mine")
    (folder / "comparison.svg").symlink_to(outside)
    show_comparison(RunFolder.open(folder), [Cell("mp", 0.5, folder / "cells" / "mp@0.5")])
    assert MARKUP.capitalize() in capsys.readouterr().out
    assert outside.read_text() == "mine"


def test_a_table_marks_the_best_and_keeps_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table((MARKUP, "[red]"), (("[/b]", "[link=x]1"),), frozenset({(0, 1)}))
    Console(width=120).print(as_rich(table))
    told = capsys.readouterr().out
    assert all(words in told for words in (MARKUP, "[red]", "[/b]", "[link=x]1"))
    assert str(as_rich(table).columns[1]._cells[0].style) == "bold"  # type: ignore[union-attr]


def test_runs_of_two_models_are_refused_in_words(
    make_run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = make_run(tmp_path / "one", ["a"], ["mp"], [0.5]), make_run(tmp_path / "two", ["b"], ["mp"], [0.5])
    assert main(["report", str(one), str(two), "-o", str(tmp_path / "out")]) == 1
    assert "cannot share a report" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_evaluate_keeps_is_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["prune", "demo", "-s", "0.95", "-m", "mp", "-o", str(run), "--quiet"]) == 0
    before = json.loads((run / "result" / "measured.json").read_text())
    assert main(["evaluate", str(run), "--seconds", "0.01", "--keep"]) == 0
    kept = json.loads((run / "result" / "measured.json").read_text())
    assert {key: kept[key] for key in before} == before
    assert kept["cost"]["multiply_adds_sparse"] == 1618
    assert main(["report", str(run), "--no-files"]) == 0
    assert f"{kept['cost']['bytes_compressed']:,}" in (run / "report.html").read_text()
    assert "kept in" in capsys.readouterr().out


def test_the_record_of_a_run_goes_into_an_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Method, scores and recipe are what a model card tells."""
    from brainsurgeon.app.cli.pruned import Pruned

    run = tmp_path / "run"
    assert main(["prune", "demo", "-s", "0.95", "-m", "mp", "-o", str(run), "--quiet"]) == 0
    capsys.readouterr()
    text = (run / "recipe.yaml").read_text()
    saved = SimpleNamespace(record={"method": "mp"})
    told = Pruned(SimpleNamespace(), saved, run / "result", text).record()  # type: ignore[arg-type]
    assert told.keys() == {"method", "scores", "recipe"}
    assert told["recipe"] == text
    assert told["scores"].keys() == {"accuracy", "loss"}

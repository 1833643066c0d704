"""Heat maps of what the loss would feel, for any number of layers, in a page of their own and in a run's report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import browser
import pytest
from pages import NASTY, Balanced, needs_browser, shown_at

from brainsurgeon.app.cli import main
from brainsurgeon.app.report import read_record, write_report
from brainsurgeon.app.report.felt import File, Survey, heat_maps, read_survey, table, write_page
from brainsurgeon.errors import BrainsurgeonError

Make = Callable[..., Path]
SPARSITIES = [0.5, 0.7, 0.8, 0.9, 0.95]


def survey(names: Sequence[str], measured: bool = True, **more: Any) -> dict[str, Any]:
    layers = [
        {
            "name": name,
            "shape": [8, 25],
            "size": 200,
            "kind": "moments",
            "predicted": [(k + 1) * s**8 for s in SPARSITIES],
            "measured": [(k + 1) * s**9 - 1e-3 for s in SPARSITIES] if measured else None,
        }
        for k, name in enumerate(names)
    ]
    felt = {"sparsities": SPARSITIES, "layers": layers, "loss": 0.2, "samples": 256, "correlation": 0.93, "notes": []}
    return {"sparsity": 0.9, "budget": dict.fromkeys(names, 0.9), "sensitivity": felt | more}


def file_of(*args: Any, **more: Any) -> File:
    return File.model_validate_json(json.dumps(survey(*args, **more)))


def names_of(count: int) -> list[str]:
    return [f"model.encoder.layers.{k}.self_attention.output.dense.weight" for k in range(count)]


@needs_browser
@pytest.mark.parametrize("count", [1, 17, 200])
def test_the_page_of_any_number_of_layers_stays_in_its_frame(count: int, tmp_path: Path) -> None:
    page = write_page(file_of(names_of(count)), tmp_path, "Sensitivity")
    for width in (390, 1400):
        shown = shown_at(page, width)
        assert shown.complaints == []
        assert f"<title>{width} of {width} out:</title>" in shown.dom
    assert page.read_text().count("</title></polygon>") == 2 * 5 * count


@needs_browser
def test_a_run_with_a_survey_shows_it(make_run: Make, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", names_of(17), ["cbs"], [0.9])
    (folder / "sensitivity.json").write_text(json.dumps(survey(names_of(17))))
    page = write_report([folder], folder, files=False)
    assert "<title>390 of 390 out:</title>" in shown_at(page, 390).dom
    assert browser.browse(page).complaints == []
    assert "Sensitivity of the layers" in page.read_text()
    assert "rank correlation of predicted and measured 0.93" in page.read_text()


def test_pictures_and_tables_are_written_beside_the_page(make_run: Make, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", ["a", "b"], ["mp"], [0.9])
    write_report([folder], folder, png=False)
    assert not (folder / "figures" / "sensitivity-predicted.svg").exists()
    (folder / "sensitivity.json").write_text(json.dumps(survey(["a", "b"])))
    write_report([folder], folder, png=False)
    assert "a at 0.9: +0.4305" in (folder / "figures" / "sensitivity-predicted.svg").read_text()
    assert (folder / "figures" / "sensitivity-measured.svg").is_file()
    lines = (folder / "tables" / "sensitivity.csv").read_text().splitlines()
    assert lines[0] == "layer,weights,change,0.5,0.7,0.8,0.9,0.95,budget"
    assert lines[1] == "a,200,predicted (moments),+0.0039,+0.058,+0.17,+0.43,+0.66,90.00"
    assert len(lines) == 1 + 2 * 2


def test_cells_are_darker_the_more_the_loss_grows() -> None:
    drawing = heat_maps(file_of(["a", "b"]).sensitivity)[0]
    cells = [shape for shape in drawing.shapes if getattr(shape, "closed", False)]
    dark = [cell.opacity for cell in cells]  # type: ignore[union-attr]
    assert dark[:5] == sorted(dark[:5])
    assert all(a < b for a, b in zip(dark[:5], dark[5:], strict=True))
    assert max(dark) == 0.7


def test_odd_changes_have_a_cell_too() -> None:
    felt = survey(["a", "b"])
    felt["sensitivity"]["layers"][0] |= {"predicted": [0.0, 0.0, 0.0, 0.0, 0.0], "measured": [-1, 0, 1, None, None]}
    file = File.model_validate_json(json.dumps(felt))
    assert [len(drawing.shapes) for drawing in heat_maps(file.sensitivity)] == [27, 27]
    assert table(file.sensitivity).rows[1][3:] == ("-1", "+0", "+1", "not finite", "not finite")
    alone = file_of(["a"], measured=False)
    assert len(heat_maps(alone.sensitivity)) == 1
    assert len(table(alone.sensitivity).rows) == 1


def test_of_very_many_layers_the_most_sensitive_are_shown() -> None:
    drawing = heat_maps(file_of([f"layer{k}" for k in range(400)]).sensitivity)[0]
    assert drawing.label == "change of the loss predicted of the 300 most sensitive layers alone"
    words = [shape.words for shape in drawing.shapes if hasattr(shape, "words")]
    assert "layer399" in words
    assert "layer99" not in words


def test_names_are_words_and_no_markup(tmp_path: Path) -> None:
    tags = []
    for names in (["plain", "b"], [NASTY, "b"]):
        parser = Balanced()
        parser.feed(write_page(file_of(names), tmp_path, "Sensitivity").read_text())
        assert parser.open == []
        tags.append(parser.seen)
    assert tags[0] == tags[1]


def test_a_damaged_survey_is_refused(make_run: Make, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", ["a"], ["mp"], [0.9])
    assert read_survey(folder) is None
    felt = survey(["a"])
    felt["sensitivity"]["layers"][0]["predicted"] = [0.5]
    (folder / "sensitivity.json").write_text(json.dumps(felt))
    with pytest.raises(BrainsurgeonError, match=r"sensitivity.json is damaged .* a has not a change for each of 5"):
        read_record([folder])


def test_inspect_writes_what_prune_and_report_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "felt"
    arguments = ["inspect", "demo", "-m", "mp", "--no-time", "--sensitivity", "-s", "0.8", "-o", str(folder)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert re.search(r"rank correlation of predicted and measured 0\.\d\d", shown)
    assert "The budget is for sparsity 0.8" in shown
    file = read_survey(folder)
    assert file is not None
    assert isinstance(file.sensitivity, Survey)
    run = tmp_path / "run"
    assert main(["prune", "demo", "-m", "mp", "-q", "--budget", str(folder / "budget.yaml"), "-o", str(run)]) == 0
    assert "mp at 0.8: 25,888 of 32,360 weights pruned" in capsys.readouterr().out
    assert main([*arguments[:-1], str(run), "--no-measure"]) == 0  # into the folder of a run
    assert main(["report", str(run), "--no-files"]) == 0
    assert "Sensitivity of the layers" in (run / "report.html").read_text()
    assert main(["inspect", "demo", "-o", str(folder)]) == 2

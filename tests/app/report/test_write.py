"""What a report leaves in its folder, of runs that were really made."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import brainsurgeon
from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.report import read_record, write_report
from brainsurgeon.app.report.tables import comparison
from brainsurgeon.app.runs import RunFolder, execute
from brainsurgeon.app.target import load_target

TARGET = f"{Path(__file__).parent.parent / 'runs' / 'own_model.py'}:build"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "compared"
    settings = {"target": TARGET, "num_gradients": 80, "loss_samples": 200}
    execute(RunFolder.create(make_recipe({**settings, "method": ["mp", "cbs"], "sparsity": [0.5, 0.9]}), folder))
    write_report([folder], folder)
    return folder


def test_pictures_are_files(compared: Path) -> None:
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    figures = compared / "figures"
    vector = {path.stem for path in figures.glob("*.svg")}
    assert {"accuracy", "sample-loss", "run-time", "cbs-0.9-layers", "cbs-0.9-weights-1"} <= vector
    for stem in vector:
        root = ElementTree.parse(figures / f"{stem}.svg").getroot()
        with image.open(figures / f"{stem}.png") as picture:
            assert picture.width == 2 * float(root.attrib["width"])
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 10
    assert (figures / "cbs-0.9-mask-0.weight.png").is_file()


def test_tables_are_files(compared: Path) -> None:
    table = comparison(read_record([compared]))
    for kind, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", table.latex())):
        assert (compared / "tables" / f"accuracy.{kind}").read_text() == text
    names = {path.stem for path in (compared / "tables").iterdir()}
    cells = {f"{method}-{sparsity}-layers" for method in ("mp", "cbs") for sparsity in (0.5, 0.9)}
    assert names == {"accuracy", "loss", "sample-loss", "outcomes", "costs", *cells}
    for row in (row for row in table.rows if row[2] != row[3]):
        assert f"**{max(row[2:], key=float)}**" in table.markdown()


def test_a_result_that_the_library_saved_has_a_report(tmp_path: Path) -> None:
    """Without scores, recipe or histograms the loss on the sample is shown."""
    target = load_target(TARGET)
    result = brainsurgeon.prune(target.model, target.data, 0.8, "mp", num_gradients=20, loss_samples=50)
    result.save(tmp_path / "saved")
    assert read_record([tmp_path / "saved"]).metric == "sample loss"
    text = write_report([tmp_path / "saved"], tmp_path / "report", files=False).read_text()
    assert "mp at sparsity 0.8" in text
    assert re.search(r"<b>[\d.]+</b><span>sample loss \(dense", text)
    assert not (tmp_path / "report" / "figures").exists()

"""The report: every picture there, in a real browser, light and dark, wide and narrow; tables in every form."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import browser
import pytest

from brainsurgeon.app.recipe import make_recipe
from brainsurgeon.app.report import read_record, write_report
from brainsurgeon.app.report import record as record_module
from brainsurgeon.app.report.tables import comparison, everything, layers
from brainsurgeon.app.runs import RunFolder, execute

TARGET = f"{Path(__file__).parent.parent / 'runs' / 'own_model.py'}:build"
SETTINGS = {"target": TARGET, "num_gradients": 80, "loss_samples": 200}
DARK = "--blink-settings=preferredColorScheme=0"
needs_browser = pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "compared"
    methods = ["mp", "algorithm1", "cbs"]
    execute(RunFolder.create(make_recipe({**SETTINGS, "method": methods, "sparsity": [0.5, 0.8, 0.9]}), folder))
    write_report([folder], folder)
    return folder


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "single"
    execute(RunFolder.create(make_recipe({**SETTINGS, "method": "algorithm1+cbs-u", "sparsity": 0.8}), folder))
    write_report([folder], folder)
    return folder


PICTURES = (
    "accuracy against sparsity",
    "loss against sparsity",
    "sample loss against sparsity",
    "run time against sparsity",
    "sparsity of each layer",
    "weights of all layers, before and after",
    "run time",
    "mask of 0.weight",
)


@needs_browser
def test_every_picture_of_a_comparison_is_there_in_a_browser_without_a_complaint(compared: Path) -> None:
    shown = browser.browse(compared / "report.html")
    assert shown.complaints == []
    labels = re.findall(r'(?:aria-label|alt)="([^"]*)"', shown.dom)
    for picture in PICTURES:
        assert picture in labels, picture
    assert labels.count("sparsity of each layer") == 9
    assert len(re.findall("<polyline", shown.dom)) > 50
    assert "NaN" not in shown.dom


@needs_browser
def test_every_picture_of_a_run_is_there_in_a_browser_without_a_complaint(single: Path) -> None:
    shown = browser.browse(single / "report.html")
    assert shown.complaints == []
    labels = re.findall(r'(?:aria-label|alt)="([^"]*)"', shown.dom)
    traces = ("objective of the search by step", "sample loss by step", "swaps taken by step")
    for picture in (*PICTURES[4:], *traces, "weights of 0.weight, before and after"):
        assert picture in labels, picture


@needs_browser
def test_a_complaint_of_the_browser_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<script>nothing.at.all()</script>")
    assert "nothing is not defined" in browser.browse(tmp_path / "bad.html").complaints[0]


@needs_browser
def test_a_link_to_an_outcome_opens_it(compared: Path) -> None:
    page = compared / "report.html"
    linked = page.with_name("linked.html")
    text = page.read_text()
    assert 'href="#cbs-0-9"' in text
    linked.write_text(text.replace("<script>", '<script>location.hash = "#cbs-0-9";</script><script>', 1))
    shown = browser.browse(linked)
    assert re.search(r'<details class="outcome" id="cbs-0-9" open', shown.dom)
    assert not re.search(r'<details class="outcome" id="mp-0-9" open', shown.dom)


@needs_browser
@pytest.mark.parametrize("width", [1100, 390])
def test_nothing_sticks_out_and_dark_is_dark(compared: Path, tmp_path: Path, width: int) -> None:
    """On a desk and on a phone the page is as wide as the window; the background follows the reader's choice."""
    image = pytest.importorskip("PIL.Image")
    probe = (
        "<script>addEventListener('load', () => { document.title = document.documentElement.scrollWidth + ' of ' + "
        "document.documentElement.clientWidth; parent.document.title = document.title; });</script>"
    )
    inner = compared / f"probe-{width}.html"
    inner.write_text((compared / "report.html").read_text().replace("</body>", f"{probe}</body>"))
    frame = f'<body style="margin:0"><iframe src="{inner.name}" style="width:{width}px;height:900px;border:0"></iframe>'
    outer = compared / f"frame-{width}.html"
    outer.write_text(frame)
    shown = browser.browse(outer, "--allow-file-access-from-files")
    found = re.search(r"<title>(\d+) of (\d+)</title>", shown.dom)
    assert found is not None
    assert int(found[1]) == int(found[2]) == width
    for flags, dark in (((), False), ((DARK,), True)):
        picture = tmp_path / f"{dark}.png"
        browser.photograph(outer, picture, max(width, 500), 900, *flags)
        corner = image.open(picture).convert("L").getpixel((3, 3))
        assert (corner < 60) == dark


@pytest.mark.parametrize("name", ["compared", "single"])
def test_the_page_stands_alone(name: str, request: pytest.FixtureRequest) -> None:
    """No address is fetched: every source and link is inside the page."""
    text = (request.getfixturevalue(name) / "report.html").read_text()
    found = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert found
    assert all(address.startswith(("data:", "#")) for address in found)
    assert "http" not in re.sub(r"<pre>.*?</pre>", "", text, flags=re.S)
    assert "url(" not in text

    class Balanced(HTMLParser):
        open: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag: str, attributes: object) -> None:
            if tag not in {"meta", "link", "img", "br"}:
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    parser = Balanced()
    parser.feed(text)
    assert parser.open == []


def test_pictures_are_files_too(compared: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    figures = compared / "figures"
    vector = sorted(path.stem for path in figures.glob("*.svg"))
    assert {"accuracy", "run-time", "cbs-0.9-layers", "cbs-0.9-weights-1"} <= set(vector)
    for stem in vector:
        root = ElementTree.parse(figures / f"{stem}.svg").getroot()
        assert root.tag.endswith("svg")
        with image.open(figures / f"{stem}.png") as picture:
            assert picture.width == 2 * float(root.attrib["width"])
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 10


def test_a_picture_of_a_mask_has_one_pixel_a_weight(compared: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    from safetensors.torch import load_file

    mask = load_file(compared / "cells" / "cbs@0.9" / "masks.safetensors")["0.weight"]
    with image.open(compared / "figures" / "cbs-0.9-mask-0.weight.png") as picture:
        assert picture.size == (24, 12)  # 24 × 12 weights, laid on its side
        alpha = picture.convert("RGBA").getchannel("A")
        assert sum(value == 0 for value in alpha.tobytes()) == int(mask.sum())
        assert (alpha.getpixel((5, 7)) == 0) == bool(mask[5, 7])


def test_tables_say_the_same_in_every_form(compared: Path) -> None:
    record = read_record([compared])
    table = comparison(record)
    rows = list(csv.reader(io.StringIO(table.csv())))
    assert rows[0] == ["sparsity", "weights left", "mp", "algorithm1", "cbs"]
    assert [row[:2] for row in rows[1:]] == [["0.5", "180"], ["0.8", "72"], ["0.9", "36"]]
    bold = {table.markdown(): r"\*\*(.*?)\*\*", table.latex(): r"\\textbf{(.*?)}", table.html(): "<b>(.*?)</b>"}
    for form, pattern in bold.items():
        best = re.findall(pattern, form)
        assert best
        for row in rows[1:]:
            assert max(row[2:], key=float) in best
    assert r"\toprule" in table.latex()
    wide = list(csv.DictReader(io.StringIO(everything(record).csv())))
    assert len(wide) == 9
    assert {row["of"] for row in wide} == {"360"}
    counted = list(csv.DictReader(io.StringIO(layers(record.outcomes[0]).csv())))
    assert sum(int(row["pruned"]) for row in counted[:-1]) == int(counted[-1]["pruned"]) == 180
    assert (compared / "tables" / "accuracy.tex").read_text() == table.latex()


def test_latex_and_html_are_safe_against_names(tmp_path: Path) -> None:
    from brainsurgeon.app.report.tables import Table

    table = Table("x", ("a_b", "<script>"), (("50%", "1&2"),))
    assert r"a\_b" in table.latex()
    assert r"50\% & 1\&2" in table.latex()
    assert "<script>" not in table.html()
    assert "a|b" not in Table("x", ("a|b",), ()).markdown()


def test_without_scores_the_sample_loss_is_shown(tmp_path: Path) -> None:
    """A result that the library saved, without test data, recipe or histograms, has a report as well."""
    import brainsurgeon
    from brainsurgeon.app.target import load_target

    target = load_target(TARGET)
    result = brainsurgeon.prune(target.model, target.data, 0.8, "mp", num_gradients=20, loss_samples=50)
    result.save(tmp_path / "saved")
    record = read_record([tmp_path / "saved"])
    assert record.metric == record_module.SAMPLE_LOSS
    page = write_report([tmp_path / "saved"], tmp_path / "report").read_text()
    assert "mp at sparsity 0.8" in page


def test_several_runs_make_one_report(compared: Path, single: Path, tmp_path: Path) -> None:
    both = read_record([compared, single])
    assert len(both.outcomes) == 10
    assert both.labels == ["mp", "algorithm1", "cbs", "algorithm1+cbs-u"]
    twice = read_record([compared, compared])
    assert "mp (compared)" in twice.labels


def test_smaller_is_better_for_what_is_called_a_loss(compared: Path) -> None:
    record = read_record([compared])
    losses = {o.label: o.scores["loss"] for o in record.outcomes if o.sparsity == 0.9}
    best = record.best(0.9, "loss")
    assert best is not None
    assert losses[best.label] == min(losses.values())

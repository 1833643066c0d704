"""The page in a real browser: every picture there, nothing sticks out, light and dark; and it stands alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import browser
import pytest
from pages import NASTY, Balanced, needs_browser, shown_at

from brainsurgeon.app.report import write_report

Make = Callable[..., Path]
DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture(scope="module")
def large(make_run: Make, cost: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report of five methods at five sparsities on two hundred layers of long names."""
    names = [f"model.encoder.layers.{k}.self_attention.output.dense.weight" for k in range(200)]
    return written(make_run(tmp_path_factory.mktemp("large") / "run", names, cost=cost))


@pytest.fixture(scope="module")
def single(make_run: Make, cost: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = [f"layers.{k}.weight" for k in range(17)]
    return written(make_run(tmp_path_factory.mktemp("single") / "run", names, ["cbs"], [0.9], cost=cost))


def written(folder: Path) -> Path:
    return write_report([folder], folder, files=False)


@needs_browser
@pytest.mark.parametrize("width", [390, 800, 1400])
@pytest.mark.parametrize("name", ["large", "single"])
def test_nothing_sticks_out(name: str, width: int, request: pytest.FixtureRequest) -> None:
    """With every part unfolded the page is as wide as the window, and all that is in a card stays there."""
    shown = shown_at(request.getfixturevalue(name), width)
    assert shown.complaints == []
    found = re.search(r"<title>(.*?)</title>", shown.dom)
    assert found is not None
    assert found[1] == f"{width} of {width} out:"


@needs_browser
@pytest.mark.parametrize("layers", [1, 200])
def test_the_chart_of_layers_stays_in_its_card(make_run: Make, tmp_path: Path, layers: int) -> None:
    page = written(make_run(tmp_path / "run", [f"block.{k}.weight" for k in range(layers)], ["mp"], [0.8]))
    shown = shown_at(page, 390)
    assert "<title>390 of 390 out:</title>" in shown.dom
    assert page.read_text().count("weights pruned</title></polygon>") == layers


@needs_browser
def test_what_sticks_out_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<body><div class="card"><p style="width:2000px">wide</p></div></body>')
    found = re.search(r"<title>(\d+) of (\d+) out:(.*?)</title>", shown_at(page, 390).dom)
    assert found is not None
    assert (int(found[1]) > int(found[2]), found[3]) == (True, "P")
    page.write_text("<script>nothing.at.all()</script>")
    assert "nothing is not defined" in browser.browse(page).complaints[0]


@needs_browser
def test_dark_is_dark(single: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for flags, dark in (((), False), ((DARK,), True)):
        picture = tmp_path / f"{dark}.png"
        browser.photograph(single, picture, 800, 900, *flags)
        assert (image.open(picture).convert("L").getpixel((3, 3)) < 60) == dark


@needs_browser
def test_a_link_to_an_outcome_opens_it(large: Path) -> None:
    text = large.read_text()
    assert 'href="#cbs-0.9"' in text
    linked = large.with_name("linked.html")
    linked.write_text(text.replace("<script>", '<script>location.hash = "#cbs-0.9";</script><script>', 1))
    shown = browser.browse(linked)
    assert re.search(r'<details class="outcome" id="cbs-0.9" open', shown.dom)
    assert not re.search(r'<details class="outcome" id="mp-0.9" open', shown.dom)


def test_every_picture_is_there(large: Path, single: Path) -> None:
    labels = re.findall(r'(?:aria-label|alt)="([^"]*)"', large.read_text())
    for picture in ("accuracy", "loss", "sample loss", "run time"):
        assert f"{picture} against sparsity" in labels
    assert labels.count("sparsity of each layer") == 25
    labels = re.findall(r'(?:aria-label|alt)="([^"]*)"', single.read_text())
    traces = ("objective of the search by step", "sample loss by step", "swaps taken by step")
    for picture in (*traces, "run time", "weights of all layers, before and after"):
        assert picture in labels, picture
    pytest.importorskip("matplotlib", reason="masks are drawn by matplotlib")
    assert "mask of layers.0.weight" in labels


def test_the_costs_are_shown(single: Path, large: Path) -> None:
    for page in (single, large):
        text = page.read_text()
        for words in ("On disk and to run", "4,321", "32,200", "1,618", "torch, ms", "0.0421"):
            assert words in text


@pytest.mark.parametrize("name", ["large", "single"])
def test_the_page_stands_alone(name: str, request: pytest.FixtureRequest) -> None:
    """No address is fetched: every source and link is inside the page."""
    text = request.getfixturevalue(name).read_text()
    found = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert found
    assert all(address.startswith(("data:", "#")) for address in found)
    assert "http" not in re.sub(r"<pre>.*?</pre>", "", text, flags=re.S)
    assert "url(" not in text
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []


def test_names_are_words_and_no_markup(make_run: Make, tmp_path: Path) -> None:
    """Layers and scores, however they are called, bring no element into the page."""
    plain = written(make_run(tmp_path / "plain", ["a", "b"], ["mp", "cbs"], [0.5, 0.9], scores={"s": 1.0}))
    nasty = written(make_run(tmp_path / "nasty", [NASTY, "b"], ["mp", "cbs"], [0.5, 0.9], scores={NASTY: 1.0}))
    tags = []
    for page in (plain, nasty):
        parser = Balanced()
        parser.feed(page.read_text())
        tags.append(parser.seen)
    assert tags[0] == tags[1]
    assert "alert(1)" in nasty.read_text()


def test_a_run_without_any_measure_has_a_page(make_run: Make, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", ["a"], ["mp", "cbs"], [0.5, 0.9], scores={}, histograms=[])
    for path in folder.rglob("result.json"):
        path.write_text(re.sub(r'"loss_(before|after)": [\d.]+', r'"loss_\1": null', path.read_text()))
    text = written(folder).read_text()
    assert "<td>–</td>" not in re.sub(r"<a [^>]*>", "", text).replace("</a>", "").split("<h2>")[0]
    assert "Sample loss" in text
    assert "sample loss against sparsity" not in text

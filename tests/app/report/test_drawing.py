"""Shapes become SVG that is well-formed whatever is written in it; axes have round numbers."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.app.report.drawing import DARK, LIGHT, Drawing, ticks

NUMBERS = st.floats(-1e100, 1e100)


@given(st.lists(st.sampled_from("a&<>\"'[]{}%-é"), max_size=20).map("".join))
def test_words_are_escaped(words: str) -> None:
    drawing = Drawing(10, 20, words)
    drawing.text(1, 2, words)
    drawing.box(0, 0, 1, 1, "s0", words)
    for standalone in (True, False):
        root = ElementTree.fromstring(drawing.svg(standalone))
        assert [part.text or "" for part in root.iter() if part.tag.endswith("text")] == [words]
        assert (root.get("aria-label") or (root[0].text if standalone else "") or "") == words


def test_a_picture_alone_brings_its_colours() -> None:
    drawing = Drawing(10, 20, "x")
    drawing.line([(0, 0), (1, 1)], "s3", 2.0)
    assert f"svg .s3-l{{stroke:{LIGHT['s3']}}}" in drawing.svg(standalone=True)
    assert "style" not in drawing.svg()
    assert LIGHT.keys() == DARK.keys()


@given(NUMBERS, NUMBERS)
def test_ticks_cover_the_range_with_few_numbers(one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = ticks(low, high)
    room = 1e-9 * max(abs(low), abs(high), 1e-100)
    assert 2 <= len(found) <= 12
    assert found == sorted(found)
    assert found[0] <= low + room
    assert found[-1] >= high - room


def test_ticks_of_tiny_and_equal_numbers() -> None:
    assert ticks(0, 5e-14) == [0, 1e-14, 2e-14, 3e-14, 4e-14, 5e-14]
    assert len(set(ticks(3.0, 3.0))) > 1

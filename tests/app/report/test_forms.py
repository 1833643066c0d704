"""A table in every form, whatever its names are made of."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.app.report.forms import Table

TABLE = Table(("method", "n_1", "50%"), (("mp", "1,234", "–"), ("cbs", "-0.5", "98.20%")), frozenset({(1, 2)}))


def rows(table: Table) -> list[list[str]]:
    return list(csv.reader(io.StringIO(table.csv())))


def test_csv_holds_plain_numbers() -> None:
    assert rows(TABLE) == [["method", "n_1", "50%"], ["mp", "1234", "–"], ["cbs", "-0.5", "98.20"]]


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-x", "@sum(a)", "\tx", "-1+1", "=HYPERLINK(1)", "+", "-"])
def test_no_cell_is_a_formula(cell: str) -> None:
    table = Table((cell, cell), ((cell, cell),))
    assert rows(table) == [[f"'{cell}", f"'{cell}"]] * 2


@pytest.mark.parametrize("cell", ["-1", "+2.5", "-1e-05", "3", "0.25"])
def test_a_number_stays_a_number(cell: str) -> None:
    assert rows(Table(("a", "b"), ((cell, cell),)))[1] == [cell, cell]


def test_a_name_of_digits_and_commas_stays_as_it_is() -> None:
    assert rows(Table(("layer", "of"), (("1,2", "1,2"),)))[1] == ["1,2", "12"]


@given(st.text())
def test_csv_never_begins_a_cell_with_a_sign_of_a_formula(cell: str) -> None:
    text = Table(("a", "b"), ((cell, "1"),)).csv()
    begins = text.split("\n", 1)[1].lstrip('"')[:1]
    assert begins not in ("=", "@", "\t")
    if begins in ("+", "-"):
        float(cell)


def test_markdown_escapes_names_and_marks_the_best() -> None:
    table = Table(("a|b", "<script>"), (("x*y_z`[l](u)", "1&2"),), frozenset({(0, 1)}))
    head, _, row = table.markdown().splitlines()
    assert head == r"| a\|b | &lt;script&gt; |"
    assert row == r"| x\*y\_z\`\[l\](u) | **1&amp;2** |"


def test_latex_escapes_names_and_marks_the_best() -> None:
    text = TABLE.latex()
    assert r"method & n\_1 & 50\% \\" in text
    assert r"cbs & -0.5 & \textbf{98.20\%} \\" in text
    assert r"mp & 1,234 & -- \\" in text
    hard = Table(("#$&{}~^\\",), (("[3]",), ("*",), ("<a>",)))
    assert r"\#\$\&\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}" in hard.latex()
    assert not re.search(r"\\\\\n[\[*]", hard.latex())  # else it is an argument of the line end
    assert r"\textless{}a\textgreater{}" in hard.latex()

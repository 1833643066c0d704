"""Names of layers where there is little room: what they share is left out, and they stay distinct."""

from __future__ import annotations

import pytest

from brainsurgeon.app.report.charts import NAME
from brainsurgeon.app.report.names import distinct


def test_what_all_begin_and_end_with_is_left_out_where_there_is_no_room() -> None:
    names = [f"model.decoder.layers.{k}.attention.weight" for k in (0, 11)]
    assert distinct(names) == ["0", "11"]
    assert distinct([*names, "model.head.out.projection.bias"]) == [
        "decoder.layers.0.attention.weight",
        "decoder.layers.11.attention.weight",
        "head.out.projection.bias",
    ]


def test_short_names_and_a_single_one_stay_as_they_are() -> None:
    short = ["a.weight", "b.weight"]
    assert distinct(short) == short
    long = ["x" * NAME + ".weight"]
    assert distinct(long) == long


@pytest.mark.parametrize("other", ["layers.0", "layers.0.weight.weight"])
def test_a_name_that_is_the_beginning_of_another_keeps_a_part(other: str) -> None:
    names = ["layers.0.weight" + ".long" * 5, other + ".long" * 5]
    found = distinct(names)
    assert len(set(found)) == 2
    assert all(found)

"""Multiply-adds and parameters from how many units stay."""

from __future__ import annotations

import pytest
import structures as s
from shrinking import CASES, chain

from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.structured.attention import open_attention
from brainsurgeon.structured.prepare import prepare
from brainsurgeon.structured.sizes import Side, Size, Term


def test_a_size_is_the_sum_of_its_products_and_what_a_unit_saves_their_difference() -> None:
    size = chain()
    assert size.count([6, 5]) == 6 * 4 + 2 * 6 * 5 + 3 * 5
    assert size.saved([6, 5], 0, 2) == size.count([6, 5]) - size.count([4, 5])
    assert size.saved([4, 5], 1, -0) == 0


def test_equal_products_are_one_term_and_a_unit_of_several_rows_counts_for_each() -> None:
    wide = Side(1, ((0, 3),))
    size = Size([Term(2, (wide,)), Term(5, (wide,)), Term(1, (Side(4),))], 2)
    assert len(size.terms) == 2
    assert size.count([2, 9]) == 7 * (1 + 2 * 3) + 4
    assert size.saved([2, 9], 0, 1) == 7 * 3
    assert size.saved([2, 9], 1, 4) == 0


@pytest.mark.parametrize("case", ["separable", "encoder", "recurrent"])
def test_the_whole_network_has_the_sizes_that_are_counted_by_hand(case: str) -> None:
    """Parameters one by one, and multiply-adds by the counter that runs the network."""
    build, data, loss = CASES[case]
    model = s.seeded(build)
    open_attention(model)
    prepared = prepare(Surgery(model, data, loss, progress=False), 8, 1)
    assert prepared.parameters.count(prepared.units) == sum(p.numel() for p in model.parameters())
    assert prepared.multiply_adds.count(prepared.units) == count_multiply_adds(model, data[0][:2], {})[0]


def test_a_head_saves_its_rows_its_columns_and_its_products() -> None:
    """Of two samples with five positions: queries, keys and values, what reads them, scores and what they mix."""
    build, data, loss = CASES["encoder"]
    model = s.seeded(build)
    open_attention(model)
    prepared = prepare(Surgery(model, data, loss, progress=False), 8, 1)
    heads = [group.name for group in prepared.groups].index("layer.self_attn.query")
    positions, width, own = 2 * 5, 8, 2
    expected = 3 * positions * width * own + positions * own * width + 2 * (positions * 5 * own)
    assert prepared.multiply_adds.saved(prepared.units, heads, 1) == expected
    assert prepared.parameters.saved(prepared.units, heads, 1) == 3 * own * (width + 1) + own * width

"""Exactly the k lowest, ties to the lowest index, by every road."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.engine.layer import lowest as module
from brainsurgeon.engine.layer.lowest import kth_lowest, lowest, lowest_by_rank, lowest_even, ranks_in_groups

ROWS = st.lists(st.lists(st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0]), min_size=6, max_size=6), min_size=1, max_size=4)


def naive(row: list[float], count: int) -> list[bool]:
    order = sorted(range(len(row)), key=lambda j: (row[j], j))[:count]
    return [j in order for j in range(len(row))]


@given(ROWS, st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_lowest_is_a_stable_sort(rows: list[list[float]], count: int) -> None:
    scores = torch.tensor(rows)
    expected = [naive(row, count) for row in rows]
    assert lowest(scores, count).tolist() == expected
    assert lowest_by_rank(scores, torch.full((len(rows),), count)).tolist() == expected
    assert (ranks_in_groups(scores) < count).tolist() == expected


@given(ROWS, st.data())
@settings(max_examples=60, deadline=None)
def test_even_counts_differ_by_one_and_add_up(rows: list[list[float]], data: st.DataObject) -> None:
    total = data.draw(st.integers(0, 6 * len(rows)))
    chosen = lowest_even(torch.tensor(rows), total)
    counts = chosen.sum(1)
    assert int(counts.sum()) == total
    assert int(counts.max() - counts.min()) <= 1
    assert chosen.tolist() == [naive(row, int(n)) for row, n in zip(rows, counts, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bits_find_the_same_threshold(dtype: torch.dtype) -> None:
    scores = torch.randn(3, 200, generator=torch.Generator().manual_seed(0)).to(dtype)
    scores[:, ::3] = 0
    for count in (1, 60, 100, 200):
        assert torch.equal(module._kth_by_bits(scores, count), kth_lowest(scores, count))

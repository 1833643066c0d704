"""Blocks cover the weights, in order, without overlap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.engine.blocks import COLUMNS_PER_ROW, make_blocks
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.weights import Layer

sizes_of_layers = st.lists(st.integers(1, 50), min_size=1, max_size=5)


def layers_of(sizes: list[int]) -> list[Layer]:
    return [Layer(f"layer{k}", (size,), sum(sizes[:k]), size) for k, size in enumerate(sizes)]


@given(
    sizes_of_layers,
    st.one_of(st.sampled_from(["model", "layer", "auto"]), st.integers(1, 60)),
    st.integers(1, 9),
)
def test_every_rule_partitions_the_weights_in_order(sizes: list[int], rule: str | int, rows: int) -> None:
    blocks = make_blocks(rule, layers_of(sizes), rows)
    covered = [k for block in blocks for k in range(block.start, block.stop)]
    assert covered == list(range(sum(sizes)))


@given(sizes_of_layers, st.integers(1, 60))
def test_chunks_are_no_larger_than_asked_and_never_cross_layers(sizes: list[int], limit: int) -> None:
    ends = {sum(sizes[: k + 1]) for k in range(len(sizes))}
    for block in make_blocks(limit, layers_of(sizes), 1):
        assert 0 < block.stop - block.start <= limit
        assert not any(block.start < end < block.stop for end in ends)


def test_the_model_is_one_block_and_layers_are_their_own() -> None:
    layers = layers_of([3, 4])
    assert make_blocks("model", layers, 1) == [slice(0, 7)]
    assert make_blocks("layer", layers, 1) == [slice(0, 3), slice(3, 7)]


def test_automatic_blocks_are_the_model_where_the_rows_suffice_and_chunks_where_not() -> None:
    layers = layers_of([4 * COLUMNS_PER_ROW, COLUMNS_PER_ROW])
    assert make_blocks("auto", layers, 5) == [slice(0, 5 * COLUMNS_PER_ROW)]
    assert all(block.stop - block.start <= 2 * COLUMNS_PER_ROW for block in make_blocks("auto", layers, 2))


@pytest.mark.parametrize("rule", ["layers", 0, -3, True, 2.5, None])
def test_other_rules_are_refused(rule: object) -> None:
    with pytest.raises(BrainsurgeonError, match="blocks must be"):
        make_blocks(rule, layers_of([3]), 1)  # type: ignore[arg-type]

"""Every pattern prunes exact counts, only feasible masks, and what scores lowest."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.engine.layer.patterns import Pattern, parse_pattern
from brainsurgeon.errors import BrainsurgeonError

NAMES = ["unstructured", "row", "2:4", "1:4", "4:8", "1x4", "4x4", "2x1", "4x4 row"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_read_and_written(name: str) -> None:
    assert str(parse_pattern(name)) == name


@pytest.mark.parametrize("text", ["", "2:", "4:2", "0x4", "rows", "2:4 row", "unstructured 2"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(BrainsurgeonError):
        parse_pattern(text)


def test_a_pattern_is_one_thing() -> None:
    with pytest.raises(BrainsurgeonError, match="not both"):
        Pattern(keep_of=(2, 4), block=(2, 2))
    with pytest.raises(BrainsurgeonError, match="column"):
        Pattern("column")  # type: ignore[arg-type]


def test_counts_are_exact_decimals() -> None:
    assert parse_pattern("unstructured").count(0.9, (40, 809)) == 29_124
    assert parse_pattern("unstructured").count(0.5, (3, 3)) == 5
    assert parse_pattern("4x4").count(0.5, (12, 4)) == 32
    assert parse_pattern("2:4").count(0.5, (3, 8)) == 12
    assert parse_pattern("2:3").count(0.3333, (2, 6)) == 4
    with pytest.raises(BrainsurgeonError, match=r"0\.75"):
        parse_pattern("1:4").count(0.5, (3, 8))
    with pytest.raises(BrainsurgeonError, match="strictly between"):
        parse_pattern("row").count(1.0, (3, 8))


@pytest.mark.parametrize(("name", "shape"), [("2:4", (3, 6)), ("4x4", (6, 8)), ("1x4", (4, 7)), ("row", (4,))])
def test_layers_that_do_not_divide_are_refused_by_shape(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(BrainsurgeonError, match=str(shape[-1])):
        parse_pattern(name).check(shape)


@given(st.sampled_from(NAMES), st.sampled_from([(8, 16), (3, 4, 8)]), st.integers(0, 10**6), st.booleans(), st.data())
@settings(max_examples=120, deadline=None)
def test_masks_are_exact_and_feasible(
    name: str, shape: tuple[int, ...], seed: int, tied: bool, data: st.DataObject
) -> None:
    pattern = parse_pattern(name)
    scores = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
    scores = (3 * scores).floor() if tied else scores
    n, m = pattern.keep_of or (0, 1)
    sparsity = 1 - n / m if n else data.draw(st.floats(0.01, 0.99))
    count = pattern.count(sparsity, shape)
    pruned = pattern.prune_lowest(scores, count)
    assert int(pruned.sum()) == count >= sparsity * scores.numel() - 1e-6
    assert pattern.feasible(pruned, count)
    assert not pattern.feasible(pruned, count - 1)
    sums = pattern.cells(pattern.block_sums(scores))
    gone = pattern.cells(pattern.block_sums(pruned.int()) > 0)
    worst_pruned = sums.masked_fill(~gone, -1).amax(-1)
    best_kept = sums.masked_fill(gone, torch.inf).amin(-1)
    assert bool((worst_pruned <= best_kept).all())


def test_infeasible_masks_are_seen() -> None:
    pruned = torch.zeros(4, 8, dtype=torch.bool)
    pruned[0] = True
    pruned[1] = True
    assert parse_pattern("unstructured").feasible(pruned, 16)
    assert parse_pattern("1x4").feasible(pruned, 16)
    assert not parse_pattern("4x4").feasible(pruned, 16)
    assert not parse_pattern("row").feasible(pruned, 16)
    assert not parse_pattern("2:4").feasible(pruned, 16)


def test_ties_go_to_the_lowest_index() -> None:
    scores = torch.zeros(2, 4)
    assert parse_pattern("unstructured").prune_lowest(scores, 3).tolist() == [[True, True, True, False], [False] * 4]
    assert parse_pattern("2:4").prune_lowest(scores, 4).tolist() == [[True, True, False, False]] * 2
    assert parse_pattern("row").prune_lowest(scores, 3).tolist() == [
        [True, True, False, False],
        [True, False, False, False],
    ]


def test_counts_outside_the_pattern_and_bad_scores_are_refused() -> None:
    scores = torch.zeros(4, 8)
    for name, count in (("2:4", 15), ("4x4", 15), ("row", 33)):
        with pytest.raises(BrainsurgeonError, match=str(count)):
            parse_pattern(name).prune_lowest(scores, count)
    scores[0, 0] = torch.nan
    with pytest.raises(BrainsurgeonError, match="not finite"):
        parse_pattern("row").prune_lowest(scores, 16)

"""Exact counts: ⌈rN⌉ weights go, whatever the ties, groups and rounding."""

import math
from fnmatch import fnmatchcase
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from toys import one_group

from brainsurgeon.engine.budget import (
    Budget,
    Share,
    apportion,
    as_budget,
    exact_count,
    lowest,
    make_budget,
    names_every,
    share_out,
)
from brainsurgeon.errors import BrainsurgeonError

CPU = torch.device("cpu")
sparsities = st.integers(1, 999).map(lambda thousandths: thousandths / 1000)
layer_sizes = st.lists(st.integers(1, 40), min_size=1, max_size=5)


def lay_out(sizes: list[int]) -> list[tuple[str, int, int]]:
    return [(f"layer{k}.weight", sum(sizes[:k]), size) for k, size in enumerate(sizes)]


@given(st.integers(1, 999), st.integers(1, 10**7))
def test_the_count_is_the_ceiling_of_the_decimal_that_was_written(thousandths: int, size: int) -> None:
    assert exact_count(thousandths / 1000, size) == -(-thousandths * size // 1000)


@pytest.mark.parametrize(("sparsity", "expected"), [(0.9, 29124), (0.95, 30742), (0.98, 31713), (1e-9, 1)])
def test_the_count_of_the_papers_first_network(sparsity: float, expected: int) -> None:
    """Neither 0.9 · 32,360 nor a tiny sparsity is carried over by a rounding error."""
    assert exact_count(sparsity, 32360) == expected


@pytest.mark.parametrize(("sparsity", "size", "expected"), [(0.07, 100, 7), (0.55, 100, 55), (0.14, 50, 7)])
def test_a_product_that_floats_round_up_is_not_rounded_up(sparsity: float, size: int, expected: int) -> None:
    """In floating point 0.07 · 100 is a little more than 7, and its ceiling 8."""
    assert math.ceil(sparsity * size) == expected + 1
    assert exact_count(sparsity, size) == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
def test_lowest_is_exact_under_ties_and_ties_go_to_the_lowest_index(values: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(values)))
    chosen = lowest(torch.tensor(values, dtype=torch.float32), count)
    expected = sorted(range(len(values)), key=lambda k: (values[k], k))[:count]
    assert chosen.nonzero().squeeze(1).tolist() == sorted(expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(BrainsurgeonError, match="not finite"):
        lowest(torch.tensor([1.0, bad, 0.5]), 1)


@given(layer_sizes, st.data())
def test_apportioned_counts_add_up_and_stay_next_to_their_quotas(sizes: list[int], data: st.DataObject) -> None:
    total = data.draw(st.integers(0, sum(sizes)))
    quotas = [Fraction(total * size, sum(sizes)) for size in sizes]
    counts = apportion(total, quotas, sizes)
    assert sum(counts) == total
    assert all(math.floor(q) <= c <= math.ceil(q) for q, c in zip(quotas, counts, strict=True))


@given(layer_sizes, sparsities, st.sampled_from(["global", "uniform"]))
def test_a_budget_partitions_the_weights_and_prunes_the_exact_total(
    sizes: list[int], sparsity: float, rule: str
) -> None:
    budget = make_budget(rule, sparsity, lay_out(sizes), CPU)
    assert budget.total == exact_count(sparsity, sum(sizes))
    assert torch.equal(torch.cat(budget.groups).sort().values, torch.arange(sum(sizes)))
    pruned = budget.lowest(torch.zeros(sum(sizes)))
    budget.check(pruned)
    assert int(pruned.sum()) == budget.total


@given(st.lists(st.integers(5, 40), min_size=2, max_size=5), sparsities)
def test_a_uniform_budget_gives_each_layer_its_share_to_within_one(sizes: list[int], sparsity: float) -> None:
    budget = make_budget("uniform", sparsity, lay_out(sizes), CPU)
    share = Fraction(budget.total, sum(sizes))
    assert all(abs(count - share * size) < 1 for count, size in zip(budget.counts, sizes, strict=True))


def test_a_budget_by_pattern_fixes_the_layers_it_names_and_leaves_the_rest_to_the_others() -> None:
    layers = [("a.weight", 0, 10), ("b.weight", 10, 20), ("c.weight", 30, 30)]
    budget = make_budget({"b.*": 0.25}, 0.5, layers, CPU)
    found = {tuple(group.tolist()): count for group, count in zip(budget.groups, budget.counts, strict=True)}
    assert found == {tuple(range(10, 30)): 5, (*range(10), *range(30, 60)): 25}


def test_the_first_pattern_that_matches_a_layer_decides() -> None:
    layers = [("a.weight", 0, 10), ("b.weight", 10, 10), ("c.weight", 20, 10)]
    budget = make_budget({"a.weight": 0.1, "[ab].*": 0.9}, 0.5, layers, CPU)
    assert budget.counts == (1, 9, 5)


def test_labels_name_the_group_of_every_weight() -> None:
    budget = make_budget("uniform", 0.5, lay_out([2, 3]), CPU)
    assert budget.labels().tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "mask",
    [torch.ones(4, dtype=torch.bool), torch.ones(4), torch.ones(3, dtype=torch.bool), torch.ones(2, 2) > 0],
    ids=["too many", "not boolean", "too short", "not a vector"],
)
def test_a_mask_that_does_not_meet_the_budget_is_refused(mask: torch.Tensor) -> None:
    with pytest.raises(BrainsurgeonError, match="a selection must"):
        one_group(4, 3).check(mask)


def old_budget(rule: str | dict[str, float], sparsity: float, layers: list[tuple[str, int, int]]) -> Budget:
    """The rules written out once more, on index tensors from the start."""
    spans = {name: torch.arange(offset, offset + size) for name, offset, size in layers}
    size = sum(len(span) for span in spans.values())
    total = exact_count(sparsity, size)
    if rule == "global":
        return Budget((torch.arange(size),), (total,))
    if rule == "uniform":
        quotas = [Fraction(total * len(span), size) for span in spans.values()]
        return Budget(tuple(spans.values()), tuple(apportion(total, quotas, [len(s) for s in spans.values()])))
    assert isinstance(rule, dict)
    fixed = {n: next((rule[p] for p in rule if fnmatchcase(n, p)), None) for n in spans}
    groups = [(spans[n], exact_count(s, len(spans[n]))) for n, s in fixed.items() if s is not None]
    rest = [spans[n] for n, s in fixed.items() if s is None]
    if rest:
        groups.append((torch.cat(rest), total - sum(count for _, count in groups)))
    return Budget(tuple(group for group, _ in groups), tuple(count for _, count in groups))


@given(
    st.lists(st.integers(4, 40), min_size=2, max_size=5),
    sparsities,
    st.sampled_from(["global", "uniform", {"layer0.*": 0.3}, {"layer[12]*": 0.25, "layer1*": 0.9}]),
)
def test_shares_as_a_budget_are_the_rules_on_index_tensors(
    sizes: list[int], sparsity: float, rule: str | dict[str, float]
) -> None:
    layers = lay_out(sizes)
    try:
        shares = share_out(rule, sparsity, layers)
    except BrainsurgeonError:
        assume(False)
    assert sum(share.count for share in shares) == exact_count(sparsity, sum(sizes))
    assert [part for share in shares for part in share.layers if part not in layers] == []
    found, made, expected = (
        as_budget(shares, CPU),
        make_budget(rule, sparsity, layers, CPU),
        old_budget(rule, sparsity, layers),
    )
    for budget in (found, made):
        assert budget.counts == expected.counts
        assert all(torch.equal(a, b) for a, b in zip(budget.groups, expected.groups, strict=True))


def test_a_share_names_its_layers() -> None:
    layers = lay_out([10, 20])
    assert share_out("global", 0.5, layers) == [Share(tuple(layers), 15)]
    assert share_out("uniform", 0.5, layers) == [Share((layers[0],), 5), Share((layers[1],), 10)]
    assert share_out({"layer1.*": 0.25}, 0.5, layers) == [Share((layers[1],), 5), Share((layers[0],), 10)]


def test_names_may_match_in_another_way() -> None:
    """A module's name stands for its weights where the caller says so."""
    layers = lay_out([10, 20])
    shares = share_out({"layer1": 0.25}, 0.5, layers, lambda rule, name: name.startswith(rule))
    assert shares[0] == Share((layers[1],), 5)
    with pytest.raises(BrainsurgeonError, match="matches no layer"):
        share_out({"layer1": 0.25}, 0.5, layers)


@pytest.mark.parametrize("rule", ["all", 3, {1: 0.5}, None])
def test_a_rule_that_is_none_is_refused(rule: object) -> None:
    with pytest.raises(BrainsurgeonError, match="budget must be"):
        share_out(rule, 0.5, lay_out([4]))  # type: ignore[arg-type]


def test_a_budget_that_cannot_be_met_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="cannot be met"):
        share_out({"layer0.*": 0.9}, 0.1, lay_out([20, 20]))


def test_a_budget_that_names_every_layer_needs_no_sparsity() -> None:
    layers = [("a.weight", 0, 10), ("b[0].weight", 10, 20)]
    rule = {"b[0].weight": 0.25, "a.*": 1.0}
    assert share_out(rule, None, layers) == [Share((layers[0],), 10), Share((layers[1],), 5)]
    assert share_out(rule, 0.5, layers) == share_out(rule, None, layers)  # 15 of 30 is what it comes to
    assert names_every(rule, layers)
    assert not names_every({"a.*": 0.5}, layers)
    assert not names_every("uniform", layers)


def test_a_pattern_that_an_earlier_one_overrides_is_still_known() -> None:
    layers = [("a.weight", 0, 10), ("b.weight", 10, 20)]
    assert share_out({"a.weight": 0.1, "*": 0.5, "b.weight": 0.2}, None, layers)[1].count == 10


@pytest.mark.parametrize(
    ("rule", "sparsity", "words"),
    [
        ({"a.*": 0.5}, None, r"must name every layer, and 1 of 2 are not in it \(b.weight\)"),
        (
            {"*": 0.5},
            0.9,
            r"comes to 15 of 30 weights \(0.5000\), while the sparsity asks for 27: leave the sparsity out",
        ),
        ({"*": 0.0}, None, "removes no weight"),
        ({"*": -0.1}, None, "must lie from 0 to 1, got -0.1"),
        ({"*": True}, None, "must lie from 0 to 1, got True"),
        ({"*": "0.5"}, None, "must lie from 0 to 1, got '0.5'"),
        ({"*": float("nan")}, None, "must lie from 0 to 1, got nan"),
        ({"a.*": 0.5, "c": 0.5}, None, "'c' matches no layer; the layers are: a.weight, b.weight"),
        ("global", None, "give the sparsity, or a budget that names every layer"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(rule: str | dict[str, float], sparsity: float | None, words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        share_out(rule, sparsity, [("a.weight", 0, 10), ("b.weight", 10, 20)])

"""Layers and rows shared out among ranks: every one once, the work even, and all ranks of one mind."""

from functools import partial

import pytest
import torch
from layer_cases import layer_case
from torch import Tensor, nn

from brainsurgeon.engine.layer.patterns import Pattern, parse_pattern
from brainsurgeon.engine.layer.solve import Effort, LayerProblem, solve_layer
from brainsurgeon.network.linear_maps import LinearMap
from brainsurgeon.pruning.layerwise import ranks
from brainsurgeon.pruning.layerwise.ranks import agreed_groups, check_ranks, owners, solve_group
from brainsurgeon.pruning.ranks import own_share


def layers(*sizes: int) -> list[LinearMap]:
    return [LinearMap(f"{number}.weight", nn.Linear(size, 4)) for number, size in enumerate(sizes)]


def test_the_largest_layer_is_given_first_and_to_the_rank_with_the_least_work() -> None:
    """The work of a layer grows with the square of its inputs."""
    loads = [0.0, 4.0 * 4**2]
    found = owners(layers(2, 8, 5, 5), loads)
    assert found == {"1.weight": 0, "2.weight": 1, "3.weight": 1, "0.weight": 0}
    assert loads == [4.0 * (64 + 4), 4.0 * (16 + 25 + 25)]


def test_alone_a_rank_has_all_batches_and_solves_all_layers() -> None:
    batches = [torch.ones(2), torch.zeros(2)]
    assert own_share(batches) == batches
    check_ranks(nn.Linear(2, 2), [])
    group, asked = layers(3, 5), list[str]()

    def problem_of(layer: LinearMap) -> LayerProblem:
        asked.append(layer.name)
        return LayerProblem(layer.weight.detach(), torch.eye(layer.weight.shape[1]), 4)

    found = list(solve_group(solve_layer, Pattern(), group, problem_of))
    assert asked == ["0.weight", "1.weight"]
    assert [int(each.pruned.sum()) for each in found] == [4, 4]
    assert agreed_groups(group, [group]) == [group]


def test_every_rank_has_the_groups_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, and without a layer that the first rank did not meet."""
    sent = list[Tensor]()
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    a, b, c, d = every = layers(2, 3, 4, 5)
    monkeypatch.setattr(ranks, "broadcast", lambda tensor, source: sent.append(tensor) or tensor)
    assert agreed_groups(every, [[c, a], [b]]) == [[c, a], [b]]
    monkeypatch.setattr(ranks, "broadcast", lambda tensor, source: sent[0])
    assert agreed_groups(every, [[a], [b, c], [d]]) == [[c, a], [b]]


@pytest.mark.parametrize("name", ["row", "2:4"])
def test_rows_solved_apart_are_those_solved_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks one after the other: what each gives to be gathered, set side by side, is the whole."""
    weights, moments = layer_case(10, 8)
    pattern, given = parse_pattern(name), list[Tensor]()
    problem = LayerProblem(weights, moments, pattern.count(0.5, weights.shape), pattern)
    layer = LinearMap("0.weight", nn.Linear(8, 10))
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    monkeypatch.setattr(ranks, "shard_sizes", lambda count: [count // 2, count - count // 2])
    monkeypatch.setattr(ranks, "broadcast", lambda tensor, source: tensor)
    monkeypatch.setattr(ranks, "sum_over_ranks", lambda tensor: tensor)
    monkeypatch.setattr(ranks, "gather_rows", lambda tensor, sizes: given.append(tensor) or tensor)
    solver = partial(solve_layer, effort=Effort(tolerance=1e-14))
    for number in (0, 1):
        monkeypatch.setattr(ranks, "rank", lambda number=number: number)
        assert len(list(solve_group(solver, pattern, [layer], lambda _: problem))) == 1
    whole = solver(problem)
    assert torch.equal(torch.cat([given[1], given[3]]), whole.pruned)
    torch.testing.assert_close(torch.cat([given[0], given[2]]), whole.weights)

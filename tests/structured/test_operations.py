"""The names are those of PyTorch, and what is said of each is true of it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from brainsurgeon.structured.operations import ALONG, ELEMENTWISE, MOVES, POOLS, REDUCTIONS

aten = torch.ops.aten
X = torch.arange(1.0, 97.0).view(2, 4, 3, 4)


@pytest.mark.parametrize("names", [MOVES, ELEMENTWISE, POOLS, REDUCTIONS, ALONG], ids=len)
def test_every_name_is_an_operation_and_stands_once(names: tuple[str, ...]) -> None:
    assert all(hasattr(aten, name) for name in names)
    assert len(set(names)) == len(names)


MOVED: dict[str, Callable[[Tensor], Tensor]] = {
    "pixel_shuffle": lambda x: aten.pixel_shuffle(x, 2),
    "channel_shuffle": lambda x: aten.channel_shuffle(x, 2),
    "roll": lambda x: aten.roll(x, [1], [1]),
    "unfold": lambda x: aten.unfold(x, 1, 2, 2),
    "repeat_interleave": lambda x: aten.repeat_interleave(x, 2, 1),
    "select": lambda x: aten.select(x, 1, 2),
}


@pytest.mark.parametrize("name", MOVED)
def test_elements_that_are_moved_stay_what_they_are(name: str) -> None:
    assert name in MOVES
    assert set(MOVED[name](X).flatten().tolist()) <= set(X.flatten().tolist())


def test_pools_say_how_many_axes_they_mix() -> None:
    """The rule reads the number from the name."""
    assert all(sum(letter.isdigit() for letter in name) == 1 for name in POOLS)


def test_what_works_along_an_axis_leaves_its_size_or_takes_it_away() -> None:
    for name in set(ALONG) - {"sort", "topk", "_softmax", "_log_softmax"}:
        assert getattr(aten, name)(X, 1).shape == X.shape, name
    for name in set(REDUCTIONS) - {
        "norm",
        "linalg_vector_norm",
        "max",
        "min",
        "var",
        "std",
        "logsumexp",
        "amax",
        "amin",
    }:
        assert getattr(aten, name)(X, 1).shape == (2, 3, 4), name

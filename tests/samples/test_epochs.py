"""Epochs hold every sample once, in an order of their own; a split loses none."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.samples.batches import batch_size
from brainsurgeon.samples.epochs import read_epoch, split, steps_of

CPU = torch.device("cpu")
X, Y = torch.arange(23.0).unsqueeze(1), torch.arange(23)
SHUFFLED = {"tensors": (X, Y), "data set": TensorDataset(X, Y)}
every_kind = pytest.mark.parametrize("data", SHUFFLED.values(), ids=SHUFFLED)


def labels(batches: Any) -> list[int]:
    return [int(label) for _, targets in batches for label in targets]


@every_kind
def test_an_epoch_holds_every_sample_once_in_an_order_of_its_own(data: Any, generator: torch.Generator) -> None:
    first, second = (list(read_epoch(data, 5, generator, CPU)) for _ in range(2))
    assert [batch_size(batch) for batch in first] == [5, 5, 5, 5, 3]
    assert sorted(labels(first)) == sorted(labels(second)) == Y.tolist()
    assert labels(first) != labels(second)
    assert all(torch.equal(inputs.squeeze(1).long(), targets) for inputs, targets in first)


@every_kind
@pytest.mark.parametrize(
    ("size", "sizes"), [(11, [11, 12]), (22, [23]), (2, [2] * 10 + [3]), (1, [1] * 23), (23, [23]), (50, [23])]
)
def test_a_last_batch_of_one_sample_joins_the_one_before_it(
    data: Any, size: int, sizes: list[int], generator: torch.Generator
) -> None:
    start = generator.get_state()
    batches = list(read_epoch(data, size, generator, CPU))
    assert [batch_size(batch) for batch in batches] == sizes
    assert steps_of(data, size) == len(sizes)
    generator.set_state(start)
    assert labels(batches) == labels(read_epoch(data, 5, generator, CPU))  # the order is that of any other size


def test_a_loaders_last_batch_of_one_sample_is_taken_as_it_comes(generator: torch.Generator) -> None:
    loader = DataLoader(TensorDataset(X, Y), 11)
    assert [batch_size(batch) for batch in read_epoch(loader, 11, generator, CPU)] == [11, 11, 1]
    assert steps_of(loader, 11) == 3


def test_empty_batches_are_left_out(generator: torch.Generator) -> None:
    none, some = (X[:0], Y[:0]), (X[:4], Y[:4])
    assert [batch_size(batch) for batch in read_epoch([none, some, none, some, none], 4, generator, CPU)] == [4, 4]
    assert not list(read_epoch(none, 4, generator, CPU))


def test_batches_of_a_loader_are_taken_as_they_come(generator: torch.Generator) -> None:
    loader = DataLoader(TensorDataset(X, Y), 7)
    batches = list(read_epoch(loader, 5, generator, CPU))
    assert [batch_size(batch) for batch in batches] == [7, 7, 7, 2]
    assert labels(batches) == Y.tolist()


@every_kind
def test_the_two_parts_of_a_split_are_all_samples(data: Any, generator: torch.Generator) -> None:
    rest, held = split(data, 0.2, generator)
    found = [labels(read_epoch(part, 50, generator, CPU)) for part in (rest, held)]
    assert [len(part) for part in found] == [18, 5]
    assert sorted(found[0] + found[1]) == Y.tolist()
    assert sorted(found[1]) != list(range(5))  # drawn, not the first


def test_a_split_holds_out_one_sample_at_least_and_not_all(generator: torch.Generator) -> None:
    _, held = split((X, Y), 0.001, generator)
    assert batch_size(held) == 1
    for share, data in ((0.5, (X[:1], Y[:1])), (1.0, (X, Y))):
        with pytest.raises(BrainsurgeonError, match="too few to hold some out"):
            split(data, share, generator)
    with pytest.raises(BrainsurgeonError, match="a list cannot be split"):
        split([(X, Y), (X, Y)], 0.5, generator)


@pytest.mark.parametrize(
    ("data", "steps"),
    [((X, Y), 5), (TensorDataset(X, Y), 5), (DataLoader(TensorDataset(X, Y), 7), 4), (iter([(X, Y)]), None), ([], 1)],
    ids=["tensors", "data set", "loader", "iterator", "nothing"],
)
def test_steps_of_an_epoch_are_counted_where_they_can_be(data: Any, steps: int | None) -> None:
    assert steps_of(data, 5) == steps


def test_batches_are_moved_to_the_device(generator: torch.Generator) -> None:
    (batch,) = read_epoch((X, Y), 50, generator, torch.device("meta"))
    assert all(isinstance(part, Tensor) and part.is_meta for part in batch)

"""Data in any shape gives the same samples, each once."""

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cases import needs_gpu
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.samples.batches import (
    SampleStream,
    as_batches,
    batch_size,
    map_tensors,
    regroup,
    replayable,
    sent,
    tensors_of,
)

CPU = torch.device("cpu")
X, Y = torch.arange(150.0).unsqueeze(1), torch.arange(150)
Pair = namedtuple("Pair", ["inputs", "targets"])


class Endless(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Any:
        return iter([(X[:90], Y[:90]), (X[90:], Y[90:])])


SOURCES = {
    "pair of tensors": lambda: (X, Y),
    "list of two tensors": lambda: [X, Y],
    "named tuple": lambda: Pair(X, Y),
    "dict": lambda: {"x": X, "y": Y},
    "data set": lambda: TensorDataset(X, Y),
    "loader": lambda: DataLoader(TensorDataset(X, Y), 7),
    "iterable data set": Endless,
    "list of batches": lambda: [(X[:10], Y[:10]), (X[10:], Y[10:])],
    "generator": lambda: ((X[k : k + 25], Y[k : k + 25]) for k in range(0, 150, 25)),
}


def labels(batches: Any) -> list[int]:
    return [int(label) for batch in batches for label in tensors_of(batch)[1]]


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_every_sample_once_with_its_own_label(source: str, generator: torch.Generator) -> None:
    batches = list(as_batches(SOURCES[source](), generator))
    assert sorted(labels(batches)) == list(range(150))
    for batch in batches:
        inputs, targets = tensors_of(batch)
        assert torch.equal(inputs.squeeze(1).long(), targets)


def test_tensors_in_memory_come_in_random_order_fixed_by_the_generator() -> None:
    def order(seed: int) -> list[int]:
        return labels(as_batches((X, Y), torch.Generator().manual_seed(seed)))

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0) != list(range(150))


def test_a_loader_is_read_in_its_own_order(generator: torch.Generator) -> None:
    assert labels(as_batches(SOURCES["loader"](), generator)) == list(range(150))


def test_what_a_loader_draws_depends_on_our_generator_alone() -> None:
    class Noisy(Dataset[Any]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, k: int) -> Any:
            return torch.tensor(float(k)) + 0.5 * torch.rand(()), k

    loader = DataLoader(Noisy(), 4, shuffle=True)

    def read(seed: int) -> torch.Tensor:
        return torch.cat([batch[0] for batch in as_batches(loader, torch.Generator().manual_seed(seed))])

    torch.manual_seed(1)
    state, first = torch.get_rng_state(), read(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(read(0), first)
    assert not torch.equal(read(1), first)
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.cat([batch[0] for batch in as_batches(loader, generator)]) for _ in range(2))
    assert torch.equal(one, first)
    assert not torch.equal(one, other)  # another epoch, another order


def test_structure_survives_a_map() -> None:
    batch = {"a": [X, (Y,)], "b": Pair(X, Y)}
    mapped = map_tensors(lambda tensor: tensor[:3], batch)
    assert isinstance(mapped["a"][1], tuple)
    assert isinstance(mapped["b"], Pair)
    assert batch_size(mapped) == 3


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 10))
def test_regrouping_keeps_every_sample_and_fills_all_batches_but_the_last(cuts: list[int], size: int) -> None:
    batches, start = [], 0
    for cut in cuts:
        batches.append((X[start : start + cut], Y[start : start + cut]))
        start += cut
    grouped = list(regroup(batches, size))
    assert labels(grouped) == list(range(sum(cuts)))
    assert all(batch_size(batch) == size for batch in grouped[:-1])
    assert batch_size(grouped[-1]) <= size


def test_batches_of_different_shapes_are_not_joined() -> None:
    grouped = list(regroup([(torch.zeros(3, 2),), (torch.zeros(3, 5),)], 4))
    assert [tensors_of(batch)[0].shape for batch in grouped] == [(3, 2), (3, 5)]


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 120))
def test_a_stream_gives_fresh_samples_first_and_seen_ones_after(taken: int, wanted: int, read: int) -> None:
    """Exactly as many as asked for, none twice before all have been given."""
    data = [(X[k : k + read][: 100 - k], Y[k : k + read][: 100 - k]) for k in range(0, 100, read)]
    stream = SampleStream(data, torch.Generator(), CPU, keep=wanted)
    first = labels(stream.take(taken))
    second = labels(stream.sample(wanted))
    assert first == list(range(taken))
    fresh = min(wanted, 100 - taken)
    assert second[:fresh] == list(range(taken, taken + fresh))
    assert set(second[fresh:]) <= set(first)
    assert len(second) == len(set(second)) == min(wanted, 100)


def test_empty_batches_are_passed_over() -> None:
    stream = SampleStream([(X[:0], Y[:0]), (X[:3], Y[:3])], torch.Generator(), CPU, keep=10)
    assert [len(tensors_of(batch)[1]) for batch in stream.take(5)] == [3]


def test_the_data_may_end_early() -> None:
    stream = SampleStream([(X[:5], Y[:5])], torch.Generator(), CPU, keep=10)
    assert labels(stream.take(50)) == [0, 1, 2, 3, 4]
    assert sorted(labels(stream.sample(50))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((X, Y[:3]), "one entry per sample"),
        ((X, torch.tensor(1.0)), "one entry per sample"),
        ((X, "a string"), "must hold tensors only"),
    ],
)
def test_batches_that_are_not_batches_are_refused(batch: Any, message: str) -> None:
    with pytest.raises(BrainsurgeonError, match=message):
        batch_size(batch)


def test_data_that_is_no_data_is_refused(generator: torch.Generator) -> None:
    with pytest.raises(BrainsurgeonError, match="data must be"):
        as_batches(5, generator)


def test_an_iterator_is_read_once_and_no_further_than_asked() -> None:
    read: list[int] = []

    def source() -> Iterator[tuple[Tensor, Tensor]]:
        for k in range(5):
            read.append(k)
            yield torch.full((2, 3), float(k)), torch.full((2,), k)

    replay = replayable(source())
    assert [int(y[0]) for _, (_, y) in zip(range(2), replay, strict=False)] == [0, 1]
    assert read == [0, 1]
    for _ in range(2):
        assert [int(y[0]) for _, y in replay] == [0, 1, 2, 3, 4]
    first, second = iter(replay), iter(replay)
    assert [int(next(it)[1][0]) for it in (first, second, first)] == [0, 0, 1]
    assert read == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("data", [None, [1, 2], (torch.ones(2), torch.ones(2)), {"x": torch.ones(2)}], ids=str)
def test_what_can_be_read_again_is_left_as_it_is(data: Any) -> None:
    assert replayable(data) is data


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[needs_gpu, pytest.mark.gpu])])
def test_a_tensor_is_sent_whole(device: str) -> None:
    """Also when its memory is written again at once: the copy is the device's own."""
    place = torch.device(device)
    kept = []
    for number in range(20):
        numbers = torch.full((1000,), float(number))
        kept.append(sent(numbers, place).clone())
        numbers.fill_(-1)
    for number, found in enumerate(kept):
        assert found.device.type == device
        assert bool((found == number).all())

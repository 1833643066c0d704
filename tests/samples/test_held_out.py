"""Training samples: some held out for good, the others drawn from, by the seed and the stage alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import every_device
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.samples import held_out as module
from brainsurgeon.samples.batches import batch_size, map_tensors
from brainsurgeon.samples.held_out import MOST_HELD_OUT, TrainingSamples, data_part, held_out_of, read_once

CPU = torch.device("cpu")
SIZE = 100


def numbered(size: int = SIZE) -> tuple[Tensor, Tensor]:
    """Samples that say who they are, twice."""
    return torch.arange(size).float().unsqueeze(1), torch.arange(size)


SOURCES: dict[str, Callable[[int], Any]] = {
    "tensors": numbered,
    "a dict": lambda size: dict(zip(("x", "y"), numbered(size), strict=True)),
    "a data set": lambda size: TensorDataset(*numbered(size)),
    "a loader": lambda size: DataLoader(TensorDataset(*numbered(size)), 8),
    "a list of batches": lambda size: list(DataLoader(TensorDataset(*numbered(size)), 8)),
    "a generator": lambda size: (batch for batch in DataLoader(TensorDataset(*numbered(size)), 8)),
}
every_source = pytest.mark.parametrize("source", SOURCES)


def names(batches: Any) -> list[int]:
    """The numbers of the samples, after a check that inputs and targets still belong together."""
    found: list[int] = []
    for batch in batches:
        x, y = batch.values() if isinstance(batch, dict) else batch
        assert x.squeeze(1).tolist() == y.tolist()
        found += y.tolist()
    return found


@every_source
def test_what_is_held_out_is_never_drawn_and_nothing_is_lost(source: str) -> None:
    samples = TrainingSamples(SOURCES[source](SIZE), 0, CPU)
    held = names(samples.held_out())
    drawn = names(samples.draw(10 * SIZE, 1))
    assert len(held) == samples.held == 20
    assert len(drawn) == samples.size == 80
    assert sorted(held + drawn) == list(range(SIZE))
    for stage in range(5):
        assert not set(names(samples.draw(30, stage))) & set(held)


@every_source
@pytest.mark.parametrize("count", [1, 7, 64, 80, 1000])
def test_as_many_as_were_asked_for_are_drawn_and_none_twice(source: str, count: int) -> None:
    drawn = names(TrainingSamples(SOURCES[source](SIZE), 0, CPU).draw(count, 3))
    assert len(drawn) == len(set(drawn)) == min(count, 80)


@every_source
def test_a_draw_depends_on_the_seed_and_the_stage_alone(source: str) -> None:
    """Not on what was drawn before: a run that is resumed sees what it would have seen."""
    one, other = (TrainingSamples(SOURCES[source](SIZE), 3, CPU) for _ in range(2))
    assert names(one.held_out()) == names(other.held_out())
    later = [names(one.draw(40, stage)) for stage in range(4)][3]
    assert names(other.draw(40, 3)) == later
    assert names(other.draw(40, 2)) != later
    assert names(TrainingSamples(SOURCES[source](SIZE), 4, CPU).draw(40, 3)) != later


@every_source
@pytest.mark.parametrize("limit", [5, 37, 100, 500])
def test_no_more_samples_are_used_than_the_limit_says(source: str, limit: int) -> None:
    samples = TrainingSamples(SOURCES[source](SIZE), 0, CPU, limit)
    seen = names(samples.held_out()) + names(samples.draw(SIZE, 0)) + names(samples.draw(SIZE, 1))
    assert samples.size + samples.held == len(set(seen)) == min(limit, SIZE)
    assert samples.held == min(limit, SIZE) // 5


def test_texts_are_judged_a_few_at_a_time_and_all_else_many() -> None:
    """A text has outputs for every token, as many as the vocabulary."""
    texts = torch.arange(100).unsqueeze(1).expand(100, 6)
    held = TrainingSamples(texts, 0, CPU).held_out()
    assert [batch_size(batch) for batch in held] == [8, 8, 4]
    assert len({int(row[0]) for batch in held for row in batch}) == 20
    assert [batch_size(batch) for batch in TrainingSamples(numbered(400), 0, CPU).held_out()] == [64, 16]


def test_tensors_under_a_limit_are_a_random_part() -> None:
    samples = TrainingSamples(numbered(), 0, CPU, 10)
    seen = names(samples.held_out()) + names(samples.draw(SIZE, 0))
    assert sorted(seen) != list(range(10))


@every_source
def test_no_more_is_held_out_than_it_takes_to_judge(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HELD_OUT", 10)
    samples = TrainingSamples(SOURCES[source](SIZE), 0, CPU)
    assert (samples.held, samples.size) == (10, 90)


def test_a_stream_without_end_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_READ", 50)
    read = 0

    def stream() -> Any:
        nonlocal read
        while True:
            read += 8
            yield torch.ones(8, 2), torch.ones(8)

    samples = TrainingSamples(stream(), 0, CPU)
    assert samples.size + samples.held == 50
    assert read == 56


@pytest.mark.parametrize("size", [8, 10])
def test_it_is_told_where_there_was_more(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_READ", 40)
    data = TensorDataset(*numbered(200))
    for given in (DataLoader(data, size), DataLoader(data, size, shuffle=True), data, list(DataLoader(data, size))):
        samples = TrainingSamples(given, 0, CPU)
        assert samples.size + samples.held == 40
        assert samples.notes == (module.MORE,)
        assert TrainingSamples(read_once(given, 0), 0, CPU).notes == (module.MORE,)
        assert not TrainingSamples(given, 0, CPU, limit=40).notes
    assert not TrainingSamples(DataLoader(TensorDataset(*numbered(40)), size), 0, CPU).notes
    assert not TrainingSamples(numbered(200), 0, CPU).notes


def test_of_a_loader_in_order_samples_are_drawn_from_all_of_it() -> None:
    data = TensorDataset(*numbered(1000))
    read = torch.cat([batch[1] for batch in read_once(DataLoader(data, 16), 3, 100)])
    assert len(set(read.tolist())) == 100
    assert read.min() < 100
    assert read.max() > 900
    again = torch.cat([batch[1] for batch in read_once(DataLoader(data, 16), 3, 100)])
    assert torch.equal(read, again)
    batched = DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 16, drop_last=False))
    assert torch.cat([batch[1] for batch in read_once(batched, 3, 100)]).tolist() == numbered(100)[1].tolist()


def test_empty_batches_are_passed_over() -> None:
    batches = [(torch.ones(size, 1), torch.ones(size)) for size in (0, 5, 0, 5)]
    samples = TrainingSamples(batches, 0, CPU)
    assert (samples.held, samples.size) == (2, 8)
    assert all(batch_size(batch) for batch in [*samples.held_out(), *samples.draw(8, 0)])


@every_source
@pytest.mark.parametrize("size", [0, 1, 4])
def test_too_little_data_is_refused(source: str, size: int) -> None:
    if size == 0 and source in {"a data set", "a loader", "a list of batches", "a generator"}:
        data: Any = []
    else:
        data = SOURCES[source](size)
    told = "too little data for a run in stages: at least 5 samples" if size else "the data is empty"
    with pytest.raises(BrainsurgeonError, match=told):
        TrainingSamples(data, 0, CPU)


def test_five_samples_are_enough() -> None:
    samples = TrainingSamples(numbered(5), 0, CPU)
    assert (samples.held, samples.size) == (1, 4)


@pytest.mark.parametrize("limit", [0, -3, 4])
def test_a_limit_that_leaves_too_little_is_refused(limit: int) -> None:
    with pytest.raises(BrainsurgeonError, match=f"max_samples must be at least 5.*got {limit}"):
        TrainingSamples(numbered(), 0, CPU, limit)


def test_parts_keep_their_structure_and_their_types() -> None:
    data = {"x": torch.arange(6).view(3, 2), "more": (torch.ones(3, dtype=torch.bfloat16),)}
    part = data_part(data, torch.tensor([2, 0]))
    assert part["x"].tolist() == [[4, 5], [0, 1]]
    assert part["more"][0].dtype == torch.bfloat16


@every_device
def test_samples_come_to_the_device_of_the_work(device: str) -> None:
    samples = TrainingSamples(numbered(), 0, torch.device(device))
    for batch in [*samples.held_out(), *samples.draw(30, 0)]:
        map_tensors(lambda tensor: tensor if tensor.device.type == device else pytest.fail(str(tensor.device)), batch)


@pytest.mark.parametrize(
    ("count", "held", "wanted"), [(5, 1, 1), (400, 80, 80), (800, 100, 160), (1000, 100, 200), (3000, 300, 600)]
)
def test_a_hundred_or_a_tenth_are_held_out_and_a_fifth_where_more_are_wanted(
    count: int, held: int, wanted: int
) -> None:
    assert held_out_of(count) == held
    assert held_out_of(count, MOST_HELD_OUT) == wanted
    assert held_out_of(10**6) == held_out_of(10**6, MOST_HELD_OUT) == MOST_HELD_OUT


@pytest.mark.parametrize("room", [0, module.BROUGHT])
def test_samples_brought_to_a_device_are_the_ones_drawn_before(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they lie changes nothing of what is drawn; here the move alone is left out."""
    monkeypatch.setattr(module, "moved", lambda batch, device: batch)
    monkeypatch.setattr(module, "BROUGHT", room)
    data = (torch.arange(50.0), torch.arange(50))
    plain = TrainingSamples(data, 3, CPU, 40)
    brought = TrainingSamples(data, 3, torch.device("cuda"), 40)
    assert brought._brought == (room > 0)
    for one, other in zip(plain.draw_again(70, 2), brought.draw_again(70, 2), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(plain.training(), brought.training(), strict=True))
    everything = [torch.cat([x for x, _ in samples.everything()]).sort().values for samples in (plain, brought)]
    assert torch.equal(*everything)
    assert len(everything[0]) == 40


@every_source
def test_weights_say_how_often_a_sample_is_drawn(source: str) -> None:
    """They are in the order in which the samples are told, whatever form the data have."""
    samples = TrainingSamples(SOURCES[source](SIZE), 0, CPU)
    told = names(samples.in_order())
    assert sorted(told) == sorted(names(samples.draw(SIZE, 0)))
    often = torch.tensor([2.0 if name % 2 else 0.5 for name in told])
    found = names(samples.draw_again(20 * samples.size, 1, often))
    odd = sum(name % 2 for name in found) / len(found)
    expected = 2.0 * sum(name % 2 for name in told) / float(often.sum())
    assert len(found) == 20 * samples.size
    assert odd == pytest.approx(expected, abs=0.03)
    assert set(found) <= set(told)
    assert names(samples.draw(40, 3, often)) == names(samples.draw(40, 3, often))
    assert names(samples.draw(40, 3, torch.ones(80))) != names(samples.draw(40, 2, torch.ones(80)))


@every_source
@pytest.mark.parametrize("ranks", [2, 3])
def test_parts_in_order_make_up_the_whole(source: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED", 7)
    samples = TrainingSamples(SOURCES[source](SIZE), 0, CPU)
    parts = [names(samples.in_order(lambda n, r=r: range(r * n // ranks, (r + 1) * n // ranks))) for r in range(ranks)]
    assert [name for part in parts for name in part] == names(samples.in_order())


def test_single_samples_in_the_place_of_batches_are_refused_in_words() -> None:
    single = [(torch.randn(4), torch.tensor(1)) for _ in range(20)]
    with pytest.raises(BrainsurgeonError, match=r"single samples become batches by torch\.utils\.data\.DataLoader"):
        TrainingSamples(single, 0, torch.device("cpu"))

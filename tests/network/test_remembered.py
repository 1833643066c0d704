"""What the dense network has answered so far: the mean over all views of a sample, and of no other one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from brainsurgeon.network import remembered as module
from brainsurgeon.network.remembered import Remembered


def outputs(views: int, size: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 3, generator=generator) for _ in range(views)]


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(1, 3)), max_size=6))
def test_an_answer_is_the_mean_over_all_views_of_the_sample_so_far(steps: list[tuple[list[int], int]]) -> None:
    """Samples may come twice in a batch, as where an epoch ends; all of their views count then."""
    remembered, seen = Remembered(6), {number: list[Tensor]() for number in range(6)}
    for seed, (numbers, views) in enumerate(steps):
        found = outputs(views, len(numbers), seed)
        for place, number in enumerate(numbers):
            seen[number] += [each[place] for each in found]
        answer = remembered.mean(torch.tensor(numbers), found)
        expected = torch.stack([torch.stack(seen[number]).mean(0) for number in numbers])
        assert torch.allclose(answer, expected, atol=1e-5)


def test_what_is_known_stays_in_its_place_and_can_be_restored() -> None:
    one, other = Remembered(4), Remembered(4)
    assert one.state() == {}
    one.mean(torch.tensor([0, 2]), outputs(2, 2, 0))
    place = one.state()["remembered"]
    other.restore(place, torch.zeros(()))
    again = outputs(2, 2, 1)
    assert torch.equal(one.mean(torch.tensor([2, 3]), again), other.mean(torch.tensor([2, 3]), again))
    assert one.state()["remembered"].data_ptr() == place.data_ptr() != other.state()["remembered"].data_ptr()
    other.restore(None, torch.zeros(()))
    assert other.state() == {}


def test_answers_in_half_precision_are_added_up_in_single() -> None:
    remembered = Remembered(1)
    for _ in range(100):
        found = remembered.mean(torch.tensor([0]), [torch.tensor([[100.0, 0.1]], dtype=torch.bfloat16)])
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, torch.tensor([[100.0, 0.1]], dtype=torch.bfloat16))


def test_more_than_may_be_kept_is_the_mean_of_the_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 11)
    remembered = Remembered(4)
    for seed in (0, 1):
        found = outputs(2, 2, seed)
        assert torch.allclose(remembered.mean(torch.tensor([0, 1]), found), (found[0] + found[1]) / 2)
    assert remembered.state() == {}


def test_every_rank_takes_in_the_answers_of_all() -> None:
    """The other rank has sample 3 of the batch."""
    rest = {(2,): torch.tensor([3]), (2, 4): torch.tensor([[1.0, 2.0, 3.0, 1.0]])}
    remembered = Remembered(4)
    remembered.whole = lambda rows: torch.cat([rows, rest[tuple(rows.shape)].to(rows.dtype)])
    remembered.mean(torch.tensor([0, 1]), outputs(1, 2, 0))
    remembered.whole = lambda rows: rows
    found = remembered.mean(torch.tensor([3]), [torch.tensor([[3.0, 2.0, 1.0]])])
    assert torch.allclose(found, torch.full((1, 3), 2.0))

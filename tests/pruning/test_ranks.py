"""What several ranks have in common: one time, the same samples, and means over shares of them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from brainsurgeon.events.clock import Clock, TimeUp
from brainsurgeon.pruning import ranks
from brainsurgeon.pruning.ranks import agreed_part, check_alike, check_time, mean_of_shares, one_time, own_share
from brainsurgeon.samples.batches import batch_size

BATCHES = [torch.arange(4.0), torch.arange(4.0, 6.0), torch.arange(6.0, 9.0)]


def mean(batches: list[Tensor]) -> float:
    return float(torch.cat(batches).mean())


def test_alone_all_is_as_it_was() -> None:
    check_alike(nn.Linear(2, 2), BATCHES)
    assert own_share(BATCHES) == BATCHES
    assert agreed_part(BATCHES[:2], BATCHES) == BATCHES[:2]
    assert mean_of_shares(mean, BATCHES) == mean(BATCHES)
    clock = Clock(limit=-1.0)
    with one_time(clock):
        check_time(clock)  # `pulse` ends it
        with pytest.raises(TimeUp):
            clock.pulse()


def test_the_first_rank_says_for_all_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    for said, late in ((0.0, True), (1.0, False)):
        monkeypatch.setattr(ranks, "agreed", lambda number, said=said: said)
        clock = Clock(limit=-1.0 if late else 100.0)
        with one_time(clock):
            clock.pulse()
            if said:
                with pytest.raises(TimeUp):
                    check_time(clock)
            else:
                check_time(clock)
    assert not clock.shared
    with one_time(Clock()) as _:
        check_time(Clock())  # no limit: nobody is asked


def test_as_many_samples_are_judged_as_the_first_rank_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    monkeypatch.setattr(ranks, "agreed", lambda number: 5.0)
    assert torch.equal(torch.cat(agreed_part(BATCHES[:1], BATCHES)), torch.arange(5.0))


@pytest.mark.parametrize("own", [range(1), range(1, 3), range(0)])
def test_a_mean_over_shares_weighs_samples_alike(own: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank without a batch gives nothing."""
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    monkeypatch.setattr(ranks, "shard", lambda count: own)
    given = list[tuple[float, int]]()
    monkeypatch.setattr(ranks, "mean_over_ranks", lambda total, count: given.append((total, count)) or math.pi)
    assert mean_of_shares(mean, BATCHES) == math.pi
    mine = [BATCHES[k] for k in own]
    assert given == [(pytest.approx(float(sum(b.sum() for b in mine))), sum(map(batch_size, mine)))]

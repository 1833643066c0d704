"""No more held-out samples are asked than there is time for, and the time of the last look is kept back."""

from types import SimpleNamespace

import pytest
import torch
from small import network, samples

from brainsurgeon.events.clock import Clock
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.pruning import judging
from brainsurgeon.pruning.judging import LEAST, LOOKS, SHARE, affordable, seconds_a_sample
from brainsurgeon.samples.batches import Batch, batch_size
from brainsurgeon.samples.held_out import FEWEST

LOSS = BatchLoss(network(), "cross_entropy")


def held_out() -> list[Batch]:
    inputs, targets = samples(1000)
    return [(inputs[k : k + 300], targets[k : k + 300]) for k in range(0, 1000, 300)]


def test_without_a_limit_all_are_asked_and_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "seconds_a_sample", lambda *_: pytest.fail("there is no hurry"))
    batches = held_out()
    assert affordable(LOSS, batches, Clock()) is batches


@pytest.mark.parametrize(("each", "count"), [(1e-9, 1000), (0.001, 500), (10.0, FEWEST)])
def test_within_a_limit_the_first_of_them_take_a_share_of_the_time(
    each: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "seconds_a_sample", lambda *_: each)
    clock, batches = Clock(limit=0.001 * 500 / SHARE), held_out()
    before = clock.left
    found = affordable(LOSS, batches, clock)
    asked = sum(map(batch_size, found))
    assert count - 20 <= asked <= count  # some time has passed
    assert torch.equal(torch.cat([inputs for inputs, _ in found]), samples(1000)[0][:asked])
    assert before - clock.left == pytest.approx(LOOKS * asked * each + LEAST, abs=0.1)


def test_a_sample_takes_its_part_of_a_batch_and_the_first_pass_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands at the number of samples whose loss is known: a GPU gives a loss before it has computed it."""
    seen = 0

    class Late:
        def __init__(self, size: int):
            self.size = size

        def __float__(self) -> float:
            nonlocal seen
            seen += self.size
            return 1.0

    monkeypatch.setattr(judging, "time", SimpleNamespace(monotonic=lambda: 0.5 * seen))
    assert seconds_a_sample(lambda batch: Late(batch_size(batch)), samples(40)) == 0.5  # type: ignore[arg-type]
    assert seen == 40 + FEWEST

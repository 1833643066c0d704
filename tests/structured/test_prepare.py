"""A network made ready: its samples, its groups, and what is refused."""

from __future__ import annotations

import pytest
import structures as s
import torch
from shrinking import QUICK, shrunk
from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.samples.batches import batch_size
from brainsurgeon.structured.prepare import example_of, read_batches, sample_count
from brainsurgeon.structured.shrink import shrink
from brainsurgeon.structured.tracing import Call


def test_what_include_asks_for_and_cannot_go_is_refused_by_name() -> None:
    with pytest.raises(BrainsurgeonError, match=r"enter\.weight: aten\.lstm\.input cannot be followed"):
        shrunk("recurrent", units=0.5, include=["enter", "middle"])
    with pytest.raises(BrainsurgeonError, match="no unit to remove"):
        shrunk("perceptron", units=0.5, include="last")


def test_a_bad_sample_is_named() -> None:
    inputs, labels = s.vectors()
    inputs[7] = torch.nan
    with pytest.raises(BrainsurgeonError, match="7"):
        shrink(s.seeded(s.Perceptron), (inputs, labels), units=0.5, **QUICK)


def test_no_samples_are_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="give data"):
        shrink(s.seeded(s.Perceptron), None, units=0.5, **QUICK)


def test_so_many_samples_are_read_and_texts_fewer_at_once() -> None:
    images = read_batches(Surgery(s.seeded(s.Perceptron), s.vectors(60), progress=False), 50)
    assert [batch_size(batch) for batch in images] == [32, 18]
    assert sample_count(images) == 50
    tokens = torch.randint(10, (20, 5), generator=torch.Generator().manual_seed(0))
    texts = read_batches(Surgery(nn.Embedding(10, 10), tokens, "next_token", progress=False), 20)
    assert [batch_size(batch) for batch in texts] == [8, 8, 4]
    with pytest.raises(BrainsurgeonError, match="the data is empty"):
        read_batches(Surgery(s.seeded(s.Perceptron), [], progress=False), 20)


def test_a_call_is_told_by_position_or_by_keyword() -> None:
    class Several(nn.Module):
        def forward(self, x: int, y: int = 2, **more: int) -> None:
            return None

    model = Several()
    assert example_of(Call((1, 2), {}), model) == (1, 2)
    assert example_of(Call((), {"x": 1}), model) == {"x": 1}
    assert example_of(Call((1,), {"y": 3, "z": 4}), model) == {"x": 1, "y": 3, "z": 4}


def test_a_network_that_takes_no_single_sample_says_which_setting_helps() -> None:
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    model = nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU(), nn.Linear(8, 3))
    data = (torch.randn(60, 6), torch.arange(60) % 3)
    with pytest.raises(BrainsurgeonError, match=r"batch=1.*more than 1 value per channel"):
        shrink(model, data, units=0.5, **QUICK)
    assert len(shrink(model, data, units=0.5, batch=2, **QUICK).kept["0"]) == 4

"""What a sample takes of memory."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from brainsurgeon.network.footprint import footprint, probe, samples_in
from brainsurgeon.network.loss import BatchLoss


def test_a_sample_and_what_its_pass_keeps_are_counted_and_not_all_the_data() -> None:
    model = nn.Sequential(nn.Linear(10, 100), nn.ReLU(), nn.Linear(100, 3))
    data = (torch.randn(1000, 10), torch.randint(3, (1000,)))
    batch = probe(data)
    assert batch is not None
    found = footprint(BatchLoss(model.eval().requires_grad_(False), "cross_entropy"), batch, data)
    assert (found.sample, found.samples, found.resident) == (10 * 4 + 8, 1000, True)
    assert 100 * 4 <= found.passing <= 400 * 4
    assert not any(p.requires_grad for p in model.parameters())


def test_what_a_network_is_made_of_is_noticed() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.inner, self.head = nn.Embedding(9, 6), nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.head(self.inner(self.words(tokens))[0][:, -1])
            return found

    data = (torch.randint(9, (8, 7)), torch.randint(3, (8,)))
    found = footprint(BatchLoss(Reader().eval(), "cross_entropy"), data, data)
    assert (found.linear, found.tokens, found.featured, found.steps) == (frozenset({"head.weight"}), True, 3 * 4, 7)


def test_probing_uses_nothing_up_and_leaves_generators_alone() -> None:
    own = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(torch.arange(20.0)), 8, shuffle=True, generator=own)
    before, outer = own.get_state(), torch.get_rng_state()
    assert probe(loader)[0].shape == (4,)  # type: ignore[index]
    assert torch.equal(own.get_state(), before)
    assert torch.equal(torch.get_rng_state(), outer)
    once = iter([torch.zeros(2, 3)])
    assert probe(once) is None
    assert next(once).shape == (2, 3)


def test_data_say_how_many_they_are_where_they_know() -> None:
    assert samples_in(DataLoader(TensorDataset(torch.zeros(7)), 2)) == 7
    assert samples_in((torch.zeros(5, 2), torch.zeros(5))) == 5
    assert samples_in(iter([])) == math.inf

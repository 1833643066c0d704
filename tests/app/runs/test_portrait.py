"""Histograms of weights: every weight counted once, before pruning and of those kept."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from brainsurgeon.app.runs import portrait
from brainsurgeon.app.runs.portrait import BINS, histograms
from brainsurgeon.network.weights import find_weights


def test_every_weight_is_counted_once_and_the_pruned_only_before() -> None:
    model = nn.Sequential(nn.Linear(40, 30, bias=False), nn.Linear(30, 20, bias=False))
    weights = find_weights(model)
    before = torch.randn(1800, generator=torch.Generator().manual_seed(0))
    pruned = before.abs() < 0.5
    shown = histograms(weights, before, torch.where(pruned, 0.0, before), pruned)
    assert [part["name"] for part in shown] == ["all layers", "0.weight", "1.weight"]
    for part, size, kept in zip(shown, (1800, 1200, 600), (pruned, pruned[:1200], pruned[1200:]), strict=True):
        assert len(part["before"]) == len(part["after"]) == BINS
        assert sum(part["before"]) == size
        assert sum(part["after"]) == int((~kept).sum())
        assert part["after"][BINS // 2] == 0 < part["before"][BINS // 2]


def test_an_outlier_does_not_stretch_the_bins_and_is_counted_at_their_end() -> None:
    before = torch.cat([torch.linspace(-1, 1, 3000), torch.tensor([1000.0])])
    part = portrait._one("w", before, before)
    assert part["reach"] == pytest.approx(1.0, rel=0.01)
    assert sum(part["before"]) == 3001
    assert part["before"][-1] > part["before"][-2]
    assert portrait._one("zeros", torch.zeros(4), torch.zeros(0))["reach"] == 1.0


def test_of_very_many_layers_the_largest_are_shown_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portrait, "MOST_LAYERS", 2)
    model = nn.Sequential(*(nn.Linear(4, width, bias=False) for width in (3, 1, 2)))
    values = torch.ones(24)
    shown = histograms(find_weights(model), values, values, torch.zeros(24, dtype=torch.bool))
    assert [part["name"] for part in shown] == ["all layers", "0.weight", "2.weight"]

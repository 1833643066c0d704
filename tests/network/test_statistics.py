"""Running statistics follow the batches, or are their plain mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from brainsurgeon.network.statistics import average_statistics, following, kept_statistics, train_statistics


def network() -> nn.Sequential:
    untracked = nn.BatchNorm1d(4, track_running_stats=False)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), untracked, nn.LayerNorm(4))


def batches(count: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(8, 3, generator=generator) * (1 + number) for number in range(count)]


def test_only_batch_normalisation_is_trained() -> None:
    model = network()
    train_statistics(model)
    assert [module.training for module in model] == [False, True, False, True, False]
    assert following(model) == [model[1]]
    model[1].eval()
    assert following(model) == []


def test_a_normalisation_that_is_frozen_keeps_its_statistics() -> None:
    model = network()
    model[1].requires_grad_(False)
    train_statistics(model)
    assert following(model) == []
    bare = nn.Sequential(nn.BatchNorm1d(3, affine=False))
    train_statistics(bare)  # it has nothing to freeze
    assert following(bare) == [bare[0]]


def test_statistics_are_kept_for_a_while_and_followed_again() -> None:
    model = network()
    train_statistics(model)
    before = model[1].running_mean.clone()
    with kept_statistics(model):
        model[:2](batches()[0][:1])  # a single sample has no variance
    assert torch.equal(model[1].running_mean, before)
    assert following(model) == [model[1]]


def test_statistics_are_the_mean_over_the_passes_and_all_else_is_as_before() -> None:
    model = network()
    train_statistics(model)
    model(100 * batches()[0])
    norm, weight = model[1], model[0].weight.clone()
    average_statistics(model, (lambda x=x: model(x) for x in batches()))
    inputs = [model[0](x) for x in batches()]
    assert torch.allclose(norm.running_mean, torch.stack([x.mean(0) for x in inputs]).mean(0), atol=1e-6)
    assert torch.allclose(norm.running_var, torch.stack([x.var(0) for x in inputs]).mean(0), rtol=1e-5)
    assert (norm.momentum, int(norm.num_batches_tracked)) == (0.1, 1)
    assert torch.equal(model[0].weight, weight)


def test_a_norm_that_follows_nothing_is_left_alone() -> None:
    model = network().eval()
    before = model[1].running_mean.clone()
    average_statistics(model, (lambda x=x: model(x) for x in batches()))
    assert torch.equal(model[1].running_mean, before)
    model[1].train()
    average_statistics(model, [])
    assert torch.equal(model[1].running_mean, before)

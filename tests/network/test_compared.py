"""A metric sample by sample, the drop from one model to another, and how sure that is."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from cases import seeded
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.compared import Scored, direction, drop, interval, paired_shares, scored, usual_metric
from brainsurgeon.network.evaluate import evaluate


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def classified() -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    model = seeded(lambda: nn.Linear(5, 3), 0)
    inputs, targets = seeded(lambda: (torch.randn(101, 5), torch.randint(3, (101,))), 1)
    return model, list(zip(inputs.split((70, 30, 1)), targets.split((70, 30, 1)), strict=True))


@pytest.mark.parametrize("metric", ["accuracy", "macro-f1", "iou", "perplexity", "loss"])
def test_the_value_is_that_of_evaluate(metric: str) -> None:
    model, batches = classified()
    score = None if metric == "loss" else metric
    wanted = evaluate(model, batches, score, "cross_entropy")[metric]
    assert scored(model, batches, metric, "cross_entropy").value == pytest.approx(wanted, rel=1e-6)


def test_samples_whose_targets_are_all_left_out_have_no_part_in_the_loss() -> None:
    model, batches = classified()
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    inputs, targets = inputs[:100], targets[:100].clone()
    targets[10:20] = -100
    kept = targets != -100
    found = scored(model, [(inputs, targets)], "loss", "cross_entropy")
    assert found.value == pytest.approx(
        float(nn.functional.cross_entropy(model(inputs[kept]), targets[kept])), rel=1e-5
    )
    assert found.of(torch.arange(5, 15)) == pytest.approx(found.of(torch.arange(5, 10).repeat(2)))
    assert math.isnan(found.of(torch.arange(10, 20)))


@pytest.mark.parametrize("metric", ["r2", "spearman"])
def test_metrics_of_numbers(metric: str) -> None:
    model = seeded(lambda: nn.Linear(5, 2), 0)
    data = seeded(lambda: (torch.randn(40, 5), torch.randn(40, 2)), 1)
    found = scored(model, [data], metric, "mse")
    assert found.value == pytest.approx(evaluate(model, data, metric, "mse")[metric], rel=1e-6)
    chosen = torch.arange(10).repeat(2)
    some = (data[0][chosen], data[1][chosen])
    assert found.of(chosen) == pytest.approx(evaluate(model, some, metric, "mse")[metric], rel=1e-6)


def test_functions_of_the_users_own() -> None:
    model, batches = classified()

    def right(outputs: Tensor, targets: Tensor) -> float:
        return float((outputs.argmax(1) == targets).double().mean())

    found = scored(model, batches, right, "cross_entropy")
    assert 100 * found.value == pytest.approx(scored(model, batches, "accuracy", "cross_entropy").value)
    assert found.units == 101
    of_model = scored(model, [], lambda network: float(network.weight.sum()), "cross_entropy")
    assert of_model == Scored(float(model.weight.detach().sum()), 0, of_model.of)
    assert interval(of_model, of_model, False, None, generator()) is None
    with pytest.raises(BrainsurgeonError, match="one number"):
        scored(model, [], lambda network: {"a": 1.0, "b": 2.0}, "cross_entropy")


def test_a_metric_that_does_not_fit_the_targets_is_refused() -> None:
    model, batches = classified()
    with pytest.raises(BrainsurgeonError, match="r2 is of numbers"):
        scored(model, batches, "r2", "cross_entropy")


def test_the_metric_that_a_loss_suggests() -> None:
    model, batches = classified()
    assert usual_metric(model, batches[0], "cross_entropy") == "accuracy"
    numbers = (batches[0][0], torch.randn(70, 3, generator=generator()))
    assert usual_metric(model, numbers, "mse") == "r2"
    assert usual_metric(model, numbers, lambda model, batch: model(batch[0]).square().mean()) == "loss"


def test_drops_by_hand() -> None:
    assert drop(94.0, 93.0, *direction("accuracy")) == pytest.approx(0.01)
    assert drop(0.5, 0.6, *direction("f1")) == pytest.approx(-0.1)
    assert drop(20.0, 21.0, *direction("perplexity")) == pytest.approx(0.05)
    assert drop(-4.0, -5.0, False, None) == pytest.approx(0.25)
    assert drop(0.0, 0.0, True, None) == 0.0
    assert drop(0.0, 1.0, True, None) == math.inf


def test_the_bootstrap_against_every_resample() -> None:
    """Of three samples all 27 resamples can be listed: the quantiles of many draws are theirs."""
    dense, pruned = torch.tensor([1.0, 4.0, 7.0]).double(), torch.tensor([1.5, 4.0, 9.0]).double()
    models = [
        Scored(float(values.mean()), 3, lambda chosen, values=values: float(values[chosen].mean()))
        for values in (dense, pruned)
    ]
    every = sorted(
        drop(float(dense[list(chosen)].mean()), float(pruned[list(chosen)].mean()), True, None)
        for chosen in itertools.product(range(3), repeat=3)
    )
    low, high = interval(*models, True, None, generator(), draws=4000)  # type: ignore[misc]
    assert low == every[int(0.025 * 27)]
    assert high == every[int(0.975 * 27)]


def test_the_interval_of_right_answers_covers_what_it_should() -> None:
    """Of all outcomes of 30 samples, by their probabilities, the interval holds the truth 93% of the time or more."""
    count, only_dense, only_pruned = 30, 0.12, 0.05
    covered = 0.0
    for lost in range(count + 1):
        for won in range(count + 1 - lost):
            ways = math.comb(count, lost) * math.comb(count - lost, won)
            chance = ways * only_dense**lost * only_pruned**won * (1 - only_dense - only_pruned) ** (count - lost - won)
            low, high = paired_shares(lost, won, count)
            covered += chance * (low <= only_dense - only_pruned <= high)
    assert covered > 0.93


def test_right_answers_have_a_closed_form_that_is_never_sure() -> None:
    model, batches = classified()
    same = scored(model, batches, "accuracy", "cross_entropy")
    low, high = interval(same, same, False, 100.0, generator())  # type: ignore[misc]
    assert low < 0 < high
    assert high == pytest.approx(1.96 / 103, rel=1e-3)  # z·√(½ + ½)/(n + 2)
    assert paired_shares(20, 0, 1000)[0] > 0.01
    assert paired_shares(20, 0, 1000)[1] < 0.04

"""L(P): the loss of the masked network, cheap to ask and no batch asked twice."""

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from cases import CASES, Case, every_case, every_device
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import Clock
from brainsurgeon.network import sample_loss as module
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.sample_loss import LossJudge, SampleLoss, WholeJudge, better, race
from brainsurgeon.network.weights import find_weights
from brainsurgeon.samples.batches import batch_size, map_tensors, regroup


def prepare(case: Case, repeat: int = 1, device: str = "cpu") -> tuple[SampleLoss, BatchLoss, Tensor, Any]:
    model = case.model().to(device).eval()
    data = map_tensors(lambda t: torch.cat([t] * repeat).to(device), case.data())
    weights = find_weights(model)
    values = weights.flatten(model)
    batch_loss = BatchLoss(model, case.loss)
    return SampleLoss(batch_loss, weights, values, [data]), batch_loss, values, data


def some_mask(values: Tensor, seed: int, share: float = 0.5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(values.numel(), generator=generator) < share).to(values.device)


def mean_loss(batch_loss: BatchLoss, data: Any) -> Tensor:
    """The mean over samples, batch by batch: a model may look at its whole batch."""
    batches = list(regroup([data], module.BATCH))
    total = sum(batch_size(batch) * batch_loss(batch).double() for batch in batches)
    return total / batch_size(data)


def first_half(sample: SampleLoss, masks: Sequence[Tensor]) -> list[float]:
    """L(P) on the part of the sample that masks are compared on."""
    return [sample.without(mask).loss(sample.num_judging) for mask in masks]


@every_device
@every_case
def test_the_loss_of_a_mask_is_that_of_a_copy_with_the_weights_at_zero(case: Case, device: str) -> None:
    """For every kind of module the swapped weights reach the forward pass, shared and recurrent ones too."""
    sample, batch_loss, values, data = prepare(case, device=device)
    pruned = some_mask(values, 0)
    masked = copy.deepcopy(batch_loss)
    find_weights(masked.model).assign(masked.model, values.masked_fill(pruned, 0.0))
    expected = mean_loss(masked, data).item()
    assert sample(pruned) == pytest.approx(expected, rel=case.tolerance)
    assert case.tolerance > 0.01 or abs(expected - mean_loss(batch_loss, data).item()) > 1e-3
    assert torch.equal(find_weights(batch_loss.model).flatten(batch_loss.model), values)


@every_device
@every_case
def test_the_gradient_is_that_of_autograd_at_the_masked_weights(case: Case, device: str) -> None:
    sample, batch_loss, values, data = prepare(case, device=device)
    pruned = some_mask(values, 1)
    found = sample.gradient(sample.masked(pruned), range(sample.num_batches))
    weights = find_weights(batch_loss.model)
    weights.assign(batch_loss.model, values.masked_fill(pruned, 0.0))
    mean_loss(batch_loss, data).backward()
    parts = [batch_loss.model.get_parameter(name) for name in weights.names]
    expected = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parts])
    torch.testing.assert_close(found, expected.double(), rtol=case.tolerance, atol=case.tolerance)


def test_the_mean_is_over_samples_though_batches_differ_in_size() -> None:
    sample, batch_loss, values, data = prepare(CASES["linear"])
    assert sample.num_batches == 2
    assert sample.at(values).loss() == pytest.approx(batch_loss(data).item(), rel=1e-5)


def test_no_batch_is_evaluated_twice() -> None:
    sample, _, values, _ = prepare(CASES["linear"], 8)
    candidate = sample.without(some_mask(values, 0))
    once = candidate.loss(3)
    spent = sample.evaluations
    assert candidate.loss(3) == once
    assert candidate.loss(2) > 0
    assert sample.evaluations == spent
    candidate.loss(5)
    assert sample.evaluations == spent + 2 * module.BATCH


def test_the_losses_of_the_last_few_weights_are_remembered() -> None:
    """Equal weights are not evaluated again, whoever asks; what has fallen out of mind is, to the same numbers."""
    sample, _, values, _ = prepare(CASES["linear"], 8)
    masks = [some_mask(values, k) for k in range(module.REMEMBERED + 1)]
    first = sample.without(masks[0])
    once = first.loss(4)
    spent = sample.evaluations
    assert sample.at(values.masked_fill(masks[0], 0.0)).loss(4) == once
    assert sample.evaluations == spent
    for mask in masks[1:]:
        sample.without(mask).loss(1)
    assert sample.without(masks[0]).loss(5) == first.loss(5)
    assert sample.evaluations == spent + module.BATCH * (module.REMEMBERED + 5)


def test_weights_changed_in_place_are_other_weights() -> None:
    sample, _, values, _ = prepare(CASES["linear"], 2)
    moving = values.clone()
    before = sample.at(moving).loss()
    moving *= 3
    assert sample.at(moving).loss() != before
    assert sample.at(values).loss() == before


@given(st.integers(0, 1000), st.integers(1, 9), st.integers(1, 4))
def test_a_race_on_a_small_sample_is_a_full_evaluation(seed: int, count: int, winners: int) -> None:
    sample, _, values, _ = prepare(CASES["linear"], 2)
    masks = [some_mask(values, seed + k) for k in range(count)]
    losses = first_half(sample, masks)
    expected = sorted(range(count), key=lambda k: (losses[k], k))[:winners]
    assert race(sample, [sample.without(mask) for mask in masks], winners) == expected


@given(st.integers(0, 1000))
def test_better_on_a_small_sample_is_a_full_comparison(seed: int) -> None:
    sample, _, values, _ = prepare(CASES["linear"], 2)
    masks = [some_mask(values, seed), some_mask(values, seed + 1)]
    new, old = first_half(sample, masks)
    assert better(sample, sample.without(masks[0]), sample.without(masks[1])) == (new < old)


def test_a_race_in_rounds_ends_with_clear_winners_and_spends_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen candidates, one of them the unpruned network: it wins, on a part of the evaluations."""
    monkeypatch.setattr(module, "ROUND_FLOPS", 0)
    sample, _, values, _ = prepare(CASES["regression"], 16)
    masks = [some_mask(values, k, 0.9) for k in range(16)]
    losses = first_half(sample, masks)
    sample.evaluations = 0
    best = race(sample, [sample.without(mask) for mask in masks])
    assert losses[best[0]] <= sorted(losses)[3]
    assert sample.evaluations < 16 * sample.num_judging * module.BATCH / 2


def test_a_clear_difference_is_seen_on_few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND_FLOPS", 0)
    sample, _, values, _ = prepare(CASES["regression"], 64)
    dense, empty = sample.at(values), sample.at(100 * values)
    assert better(sample, dense, empty)
    assert not better(sample, empty, dense)
    assert sample.evaluations < sample.num_judging * module.BATCH


def test_a_loss_that_diverges_counts_as_infinite_and_loses() -> None:
    sample, _, values, _ = prepare(CASES["linear"])
    broken, sound = sample.at(values * torch.nan), sample.at(values)
    assert broken.loss() == float("inf")
    assert race(sample, [broken, sound]) == [1]
    assert better(sample, sound, broken)
    assert not better(sample, broken, sound)


def test_a_judge_orders_masks_and_weights_by_their_loss() -> None:
    sample, _, values, _ = prepare(CASES["linear"], 2)
    judge = LossJudge(sample, Clock())
    masks = [some_mask(values, k) for k in range(5)]
    losses = first_half(sample, masks)
    order = sorted(range(5), key=losses.__getitem__)
    assert judge.best_masks(masks, 3) == order[:3]
    assert judge.is_better(masks[order[0]], masks[order[1]])
    assert not judge.is_better(masks[order[1]], masks[order[0]])
    assert judge.best_weights([values.masked_fill(mask, 0.0) for mask in masks]) == order[0]


def test_the_judge_of_the_whole_sample_asks_all_of_it_of_every_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where races would stop early."""
    monkeypatch.setattr(module, "ROUND_FLOPS", 0)
    sample, _, values, _ = prepare(CASES["regression"], 16)
    masks = [some_mask(values, k) for k in range(12)]
    losses = [sample(mask) for mask in masks]
    order = sorted(range(12), key=losses.__getitem__)
    judge = WholeJudge(sample, Clock())
    sample.evaluations = 0
    assert judge.best_masks(masks, 12) == order
    assert sample.evaluations >= (12 - module.REMEMBERED) * sample.num_batches * module.BATCH
    for first, second in pairwise(order):
        assert judge.is_better(masks[first], masks[second])
        assert not judge.is_better(masks[second], masks[first])
        assert not judge.is_better(masks[first], masks[first])
    assert judge.best_weights([values.masked_fill(mask, 0.0) for mask in masks]) == order[0]


def test_the_judge_of_the_whole_sample_sees_what_the_first_half_hides() -> None:
    """Two candidates, of which one is better on the first half and worse on the whole."""
    sample, _, values, _ = prepare(CASES["linear"], 4)
    half = sample.num_judging
    pairs = [(some_mask(values, 2 * k), some_mask(values, 2 * k + 1)) for k in range(200)]
    found = [
        (a, b)
        for a, b in pairs
        if (sample.without(a).loss(half) < sample.without(b).loss(half)) != (sample(a) < sample(b))
    ]
    assert found
    for a, b in found:
        assert WholeJudge(sample, Clock()).is_better(a, b) == (sample(a) < sample(b))
        assert LossJudge(sample, Clock()).is_better(a, b) != (sample(a) < sample(b))


def test_a_judge_remembers_the_loss_of_the_mask_it_holds() -> None:
    sample, _, values, _ = prepare(CASES["linear"], 2)
    judge = LossJudge(sample, Clock())
    masks = [some_mask(values, k) for k in range(3)]
    held = masks[1] if judge.is_better(masks[1], masks[0]) else masks[0]
    spent = sample.evaluations
    judge.is_better(masks[2], held)
    assert sample.evaluations == spent + sample.num_judging * module.BATCH


def test_the_judges_gradient_uses_none_of_the_samples_that_it_compares_on() -> None:
    """Were the first half broken, the gradient would not notice."""
    sample, batch_loss, values, _ = prepare(CASES["linear"], 8)
    pruned = some_mask(values, 0)
    expected = LossJudge(sample, Clock()).gradient(pruned)
    inputs, labels = CASES["linear"].data()
    count = sample.num_judging * module.BATCH
    inputs, labels = inputs.repeat(8, 1), labels.repeat(8)
    inputs[:count] = torch.nan
    broken = SampleLoss(batch_loss, find_weights(batch_loss.model), values, [(inputs, labels)])
    torch.testing.assert_close(LossJudge(broken, Clock()).gradient(pruned), expected)


def test_a_sample_of_one_batch_has_a_gradient_too() -> None:
    case = CASES["linear"]
    model = case.model().eval()
    weights = find_weights(model)
    values = weights.flatten(model)
    inputs, labels = case.data()
    sample = SampleLoss(BatchLoss(model, case.loss), weights, values, [(inputs[:9], labels[:9])])
    gradient = LossJudge(sample, Clock()).gradient(torch.zeros_like(values, dtype=torch.bool))
    assert gradient.abs().sum() > 0


def test_an_empty_sample_is_refused() -> None:
    model = CASES["linear"].model()
    weights = find_weights(model)
    with pytest.raises(BrainsurgeonError, match="the data is empty"):
        SampleLoss(BatchLoss(model, "cross_entropy"), weights, weights.flatten(model), [])


class Told:
    """A candidate whose batch means are given, and which notes how many were asked for."""

    def __init__(self, means: list[float]):
        self._means, self.asked = means, 0

    def means(self, batches: int) -> list[float]:
        self.asked = max(self.asked, batches)
        return self._means[:batches]

    def loss(self, batches: int) -> float:
        return sum(self.means(batches)) / batches


class Judged:
    """A sample of so many batches, of which a comparison starts on some."""

    def __init__(self, batches: int, first: int):
        self.num_judging, self._first = batches, first

    def first_round(self, candidates: int) -> int:
        return self._first


@pytest.mark.parametrize(
    ("gain", "asked"),
    # Differences of −gain ± 1: 2 standard errors are 1.155 on 4 batches, 0.756 on 8, 0.516 on 16, 0.359 on 32.
    [(1.2, 4), (1.1, 8), (0.8, 8), (0.7, 16), (0.55, 16), (0.4, 32), (0.3, 64), (0.01, 64), (-0.7, 16), (-0.3, 64)],
)
def test_the_paired_test_asks_for_two_standard_errors_of_the_mean(gain: float, asked: int) -> None:
    """No sooner and no later; what comes alike to both candidates plays no part."""
    common = [100.0 * (k % 7) for k in range(64)]
    old = Told(common)
    new = Told([base - gain + (-1) ** k for k, base in enumerate(common)])
    assert better(Judged(64, 4), new, old) == (gain > 0)  # type: ignore[arg-type]
    assert new.asked == old.asked == asked

"""The last step of a run: weights written, zeros counted in the model itself."""

from typing import Any

import pytest
import torch
from cases import CASES, Case, every_case
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.finish import finish, measured_loss
from brainsurgeon.pruning.outcome import Outcome
from brainsurgeon.pruning.result import PruningResult

RECORD: dict[str, Any] = {
    "sparsity": 0.5,
    "method": "mp",
    "seconds": {},
    "settings": {},
}


CPU = torch.device("cpu")


def parts(case: Case) -> tuple[nn.Module, Any, Tensor, Tensor]:
    model = case.model()
    weights = find_weights(model)
    pruned = torch.arange(weights.size) % 2 == 0
    return model, weights, pruned, weights.flatten(model).masked_fill(pruned, 0.0)


def done(model: nn.Module, weights: Any, pruned: Tensor, new: Tensor, count: int, **outcome: Any) -> PruningResult:
    found = Outcome(weights.unflatten(pruned), weights.unflatten(new), **outcome)
    return finish(model, weights, found, count, "cross_entropy", CPU, **RECORD)


@every_case
def test_the_model_holds_the_weights_and_the_record_counts_them(case: Case) -> None:
    model, weights, pruned, new = parts(case)
    count = int(pruned.sum())
    result = done(model, weights, pruned, new, count)
    assert result.model is model
    torch.testing.assert_close(weights.flatten(model), new)
    assert sum(layer.pruned for layer in result.layers) == result.pruned == count
    for layer in result.layers:
        mask = result.masks[layer.name]
        assert mask.shape == layer.shape
        assert int(mask.sum()) == layer.pruned
        assert not model.get_parameter(layer.name)[mask].any()


@every_case
def test_weights_that_are_not_finite_are_refused_before_the_model_is_touched(case: Case) -> None:
    model, weights, pruned, new = parts(case)
    before = weights.flatten(model)
    new[1] = torch.inf
    with pytest.raises(BrainsurgeonError, match="that are not finite: raise the damping"):
        done(model, weights, pruned, new, int(pruned.sum()))
    assert torch.equal(weights.flatten(model), before)


@every_case
def test_a_count_that_is_off_or_a_weight_that_is_not_zero_is_found(case: Case) -> None:
    model, weights, pruned, new = parts(case)
    count = int(pruned.sum())
    with pytest.raises(AssertionError, match=f"{count} weights were pruned and {count} are zero where {count + 1}"):
        done(model, weights, pruned, new, count + 1)
    with pytest.raises(AssertionError, match=f"{count} weights were pruned and {count - 1} are zero"):
        done(model, weights, pruned, new.index_fill(0, torch.tensor([0]), 0.5), count)


def test_the_loss_is_measured_on_the_model_given_back_by_samples_and_in_eval_mode() -> None:
    """Of batches of unequal size, each sample counts alike; the modes of all modules come back."""
    case = CASES["batch_norm_dropout"]
    model, weights, pruned, new = parts(case)
    model.train()
    model[1].eval()  # type: ignore[index]
    inputs, labels = case.data()
    sample = [(inputs[:30], labels[:30]), (inputs[30:], labels[30:])]
    result = done(model, weights, pruned, new, int(pruned.sum()), sample=sample, loss_before=1.0)
    assert [part.training for part in model.children()] == [True, False, True, True, True, True]
    expected = nn.functional.cross_entropy(model.eval()(inputs), labels)
    assert result.loss_after == pytest.approx(expected.item(), rel=1e-5)
    assert result.loss_before == 1.0


def test_without_samples_no_loss_is_told_and_a_diverged_one_is_infinite() -> None:
    model = nn.Linear(2, 2)
    assert measured_loss(model, "cross_entropy", [], CPU) is None
    with torch.no_grad():
        model.weight.fill_(torch.nan)
    assert measured_loss(model, "cross_entropy", [(torch.ones(3, 2), torch.zeros(3).long())], CPU) == torch.inf

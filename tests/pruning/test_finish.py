"""The last step of a run: weights written, zeros counted in the model itself."""

from typing import Any

import pytest
import torch
from cases import Case, every_case
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.finish import finish

RECORD: dict[str, Any] = {
    "sparsity": 0.5,
    "method": "mp",
    "predicted_change": None,
    "loss_before": 1.0,
    "loss_after": 2.0,
    "seconds": {},
    "settings": {},
}


def parts(case: Case) -> tuple[nn.Module, Any, Tensor, Tensor]:
    model = case.model()
    weights = find_weights(model)
    pruned = torch.arange(weights.size) % 2 == 0
    return model, weights, pruned, weights.flatten(model).masked_fill(pruned, 0.0)


@every_case
def test_the_model_holds_the_weights_and_the_record_counts_them(case: Case) -> None:
    model, weights, pruned, new = parts(case)
    count = int(pruned.sum())
    result = finish(model, weights, pruned, new, count, **RECORD)
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
    with pytest.raises(BrainsurgeonError, match="not finite: raise the damping"):
        finish(model, weights, pruned, new, int(pruned.sum()), **RECORD)
    assert torch.equal(weights.flatten(model), before)


@every_case
def test_a_count_that_is_off_or_a_weight_that_is_not_zero_is_found(case: Case) -> None:
    model, weights, pruned, new = parts(case)
    count = int(pruned.sum())
    with pytest.raises(AssertionError, match=f"{count} weights were pruned and {count} are zero where {count + 1}"):
        finish(model, weights, pruned, new, count + 1, **RECORD)
    with pytest.raises(AssertionError, match=f"{count} weights were pruned and {count - 1} are zero"):
        finish(model, weights, pruned, new.index_fill(0, torch.tensor([0]), 0.5), count, **RECORD)

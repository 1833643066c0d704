"""The zeros of a model: found, set and counted as exact zeros, whatever the sign of what is not one."""

import pytest
import torch
from cases import Case, every_case
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.weights import find_weights
from brainsurgeon.network.zeros import check_masks, count_zeros, set_zeros, zero_masks

VALUES = [[0.0, -1.0, 2.0], [-0.0, 1e-30, -1e-30], [-5.0, 0.0, 3.0]]
ZEROS = [[True, False, False], [True, False, False], [False, True, False]]


def model(values: list[list[float]] = VALUES) -> nn.Module:
    made = nn.Linear(3, 3)
    with torch.no_grad():
        made.weight.copy_(torch.tensor(values))
    return made


def test_exact_zeros_are_found_and_nothing_else() -> None:
    """Neither negative weights nor tiny ones; a zero may have a sign."""
    assert zero_masks(model())["weight"].tolist() == ZEROS
    assert count_zeros(model(), {"weight": torch.tensor(ZEROS)}) == 3


@pytest.mark.parametrize("value", [1.0, -1.0, 1e-30, -1e-30, float("nan")])
def test_a_masked_weight_that_is_not_zero_is_found_whatever_it_is(value: float) -> None:
    changed = model()
    with torch.no_grad():
        changed.weight[2, 1] = value
    with pytest.raises(BrainsurgeonError, match="1 of the 3 pruned weights of 'weight' are no longer zero"):
        count_zeros(changed, {"weight": torch.tensor(ZEROS)})


@every_case
def test_what_is_set_is_found_again(case: Case) -> None:
    made = case.model()
    generator = torch.Generator().manual_seed(0)
    masks: dict[str, Tensor] = {}
    for name in find_weights(made).names:
        masks[name] = torch.rand(made.get_parameter(name).shape, generator=generator) < 0.4
    before = {name: made.get_parameter(name).detach().clone() for name in masks}
    set_zeros(made, masks)
    found = zero_masks(made)
    assert count_zeros(made, masks) == sum(int(mask.sum()) for mask in masks.values())
    for name, mask in masks.items():
        assert torch.equal(found[name], mask)
        assert torch.equal(made.get_parameter(name)[~mask], before[name][~mask])


def test_a_model_without_zeros_says_so() -> None:
    with pytest.raises(BrainsurgeonError, match="has no exact zeros among its prunable weights"):
        zero_masks(model([[1.0, -1.0, 1e-30]] * 3))


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({}, "there are no masks"),
        ({"bias2": torch.ones(3, dtype=torch.bool)}, "the masks name 'bias2', which is no parameter of Linear"),
        ({"weight": torch.ones(3, 3)}, r"must be boolean of shape \(3, 3\), got torch.float32 of shape \(3, 3\)"),
        ({"weight": torch.ones(9, dtype=torch.bool)}, r"must be boolean of shape \(3, 3\), got .* \(9,\)"),
        ({"weight": [[True] * 3] * 3}, r"must be boolean of shape \(3, 3\), got a list"),
    ],
    ids=str,
)
def test_masks_that_fit_no_model_are_refused(masks: dict[str, Tensor], message: str) -> None:
    for use in (check_masks, set_zeros, count_zeros):
        with pytest.raises(BrainsurgeonError, match=message):
            use(model(), masks)

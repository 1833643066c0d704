"""What an optimizer knows of the weights: whose they are, and the mean squares of their gradients."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.training.held import as_optimizers, holders, own_square, unbiased_square


def test_one_or_several_optimizers_are_a_list_without_their_wrappers() -> None:
    model = nn.Linear(3, 2)
    one, other = SGD([model.weight]), Adam([model.bias])
    assert as_optimizers(one) == [one]
    assert as_optimizers((one, other)) == [one, other]
    assert as_optimizers(SimpleNamespace(optimizer=one, param_groups=one.param_groups)) == [one]
    for bad in ([], [one, 3], None, "sgd"):
        with pytest.raises(BrainsurgeonError, match=r"expected a torch\.optim\.Optimizer"):
            as_optimizers(bad)


def test_every_weight_has_its_optimizer_and_one_that_none_trains_is_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    one, other = SGD(model[0].parameters()), Adam(model[1].parameters())
    weights = {"0.weight": model[0].weight, "1.weight": model[1].weight}
    assert holders([one, other], weights, True) == {"0.weight": one, "1.weight": other}
    with pytest.raises(BrainsurgeonError, match=r"does not hold the weight '1\.weight'"):
        holders([one], weights, True)


def test_a_frozen_weight_needs_no_optimizer_unless_gradients_are_to_score_it() -> None:
    model = nn.Linear(3, 2).requires_grad_(False)
    assert holders([SGD([torch.ones(1)])], {"weight": model.weight}, False) == {"weight": None}
    with pytest.raises(BrainsurgeonError, match=r"'weight' is frozen .*score_power=0"):
        holders([SGD([torch.ones(1)])], {"weight": model.weight}, True)


def test_squares_are_those_of_the_gradients_with_their_bias_taken_off() -> None:
    """Equal gradients at every step: without its bias, the mean of their squares is their square."""
    weight = nn.Parameter(torch.zeros(3))
    optimizer = Adam([weight], betas=(0.9, 0.95))
    assert own_square(optimizer, weight) is None
    assert unbiased_square(optimizer, weight) is None
    for _ in range(4):
        weight.grad = torch.tensor([1.0, -2.0, 0.5])
        optimizer.step()
    biased, unbiased = own_square(optimizer, weight), unbiased_square(optimizer, weight)
    assert biased is optimizer.state[weight]["exp_avg_sq"]
    torch.testing.assert_close(unbiased, torch.tensor([1.0, 4.0, 0.25]))
    torch.testing.assert_close(biased, (1 - 0.95**4) * torch.tensor([1.0, 4.0, 0.25]))


def test_squares_of_another_shape_or_of_no_optimizer_are_none() -> None:
    """As factored optimizers keep them."""
    weight = nn.Parameter(torch.zeros(3, 2))
    optimizer = Adam([weight])
    optimizer.state[weight] = {"exp_avg_sq": torch.ones(3), "step": 1}
    assert unbiased_square(optimizer, weight) is None
    assert unbiased_square(None, weight) is None
    optimizer.state[weight] = {"exp_avg_sq": torch.ones(3, 2), "step": torch.tensor(0.0)}
    assert torch.equal(unbiased_square(optimizer, weight), torch.ones(3, 2))

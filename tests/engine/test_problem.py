"""What selections and updates are given."""

import pytest
import torch
from toys import make_toy, mask_of, one_group

from brainsurgeon.engine.problem import Problem
from brainsurgeon.errors import BrainsurgeonError


def test_what_a_method_said_it_would_not_need_is_refused() -> None:
    problem = Problem(torch.ones(4), one_group(4, 2), torch.Generator())
    with pytest.raises(BrainsurgeonError, match="needs curvature: let its `uses_curvature` be True"):
        _ = problem.quadratic
    with pytest.raises(BrainsurgeonError, match="asks for the sample loss: let its `uses_loss` be True"):
        _ = problem.judge


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_changed_weights_are_exactly_zero_where_pruned_whatever_the_step_says(dtype: torch.dtype) -> None:
    toy = make_toy(0)
    weights = torch.from_numpy(toy.w).to(dtype)
    problem = Problem(weights, one_group(toy.size, 3), torch.Generator())
    pruned, delta = mask_of([0, 4, 9], toy.size), torch.linspace(-1, 1, toy.size, dtype=torch.float64)
    new = problem.changed(pruned, delta)
    assert new.dtype == dtype
    assert not new[pruned].any()
    torch.testing.assert_close(new[~pruned], (weights.double() + delta).to(dtype)[~pruned])

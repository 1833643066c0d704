"""A mask from elsewhere is taken as it is, and refused where its count is not the budget's."""

import pytest
import torch

from brainsurgeon import BrainsurgeonError, Surgery
from brainsurgeon.engine.selection import Given
from brainsurgeon.engine.update import Joint


def surgery() -> Surgery:
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    data = (torch.randn(40, 6, generator=generator), torch.randint(3, (40,), generator=generator))
    return Surgery(model, data, num_gradients=20, progress=False)


def test_the_mask_of_one_method_can_be_given_to_another_update() -> None:
    examined = surgery()
    masks = examined.prune(0.5, "mp").masks
    result = examined.prune(0.5, (Given(masks), Joint()))
    assert all(torch.equal(result.masks[name], masks[name]) for name in masks)
    assert result.predicted_change < examined.prune(0.5, "mp", certifiable=True).predicted_change


def test_a_mask_of_another_count_is_refused() -> None:
    examined = surgery()
    masks = examined.prune(0.5, "mp").masks
    with pytest.raises(BrainsurgeonError, match="prune exactly"):
        examined.prune(0.6, (Given(masks), Joint()))

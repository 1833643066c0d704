"""`torch.nn.utils.prune` both ways."""

import pytest
import torch
from cases import CASES, TABLE, Case
from torch import nn
from torch.nn.utils import prune as torch_prune

from brainsurgeon import BrainsurgeonError, prune
from brainsurgeon.export import from_torch_prune, to_torch_prune
from brainsurgeon.export.torch_prune import make_permanent
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.zeros import count_zeros


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_our_masks_are_read_back_and_removed_by_torch(case: Case) -> None:
    result = prune(case.model(), case.data(), 0.6, "mp", case.loss, num_gradients=1, progress=False)
    before = BatchLoss(result.model.eval(), case.loss)(case.data())
    to_torch_prune(result.model, result.masks)
    assert torch.allclose(BatchLoss(result.model, case.loss)(case.data()), before, rtol=1e-4)
    found = from_torch_prune(result.model)
    assert result.masks.keys() <= found.keys()
    assert all(torch.equal(found[name], mask) for name, mask in result.masks.items())
    make_permanent(result.model)
    assert count_zeros(result.model, result.masks) == result.pruned
    assert not [name for name, _ in result.model.named_buffers() if name.endswith("_mask")]
    assert torch.allclose(BatchLoss(result.model, case.loss)(case.data()), before, rtol=1e-4)


def test_torch_masks_become_ours() -> None:
    model = CASES["linear"].model()
    assert isinstance(model, nn.Sequential)
    torch_prune.l1_unstructured(model[0], "weight", amount=30)
    masks = from_torch_prune(model)
    assert {name: int(mask.sum()) for name, mask in masks.items()} == {"0.weight": 30}
    assert torch.equal(masks["0.weight"], model[0].weight == 0)
    make_permanent(model)
    assert count_zeros(model, masks) == 30


def test_a_model_without_masks_is_named_as_such() -> None:
    with pytest.raises(BrainsurgeonError, match=r"carries no masks of torch\.nn\.utils\.prune"):
        from_torch_prune(nn.Linear(3, 3))

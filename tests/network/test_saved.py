"""What a pass keeps for the way back: counted once by storage, without the weights."""

import torch
from torch import nn

from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.saved import kept_by, saved


def test_activations_are_counted_once_and_weights_are_not() -> None:
    model, inputs = nn.Linear(6, 5), torch.randn(3, 6)
    with saved(model) as seen:
        outputs = torch.tanh(model(inputs))
    assert sum(seen.values()) == inputs.nbytes + outputs.nbytes


def test_of_a_part_of_the_data_the_part_is_counted() -> None:
    model, everything = nn.Linear(6, 5), torch.randn(100, 6)
    with saved(model) as seen:
        model(everything[:3])
    assert sum(seen.values()) == everything[:3].nbytes


def test_a_frozen_model_tells_what_its_pass_would_keep_and_stays_frozen() -> None:
    model, batch = (
        nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 3)),
        (torch.randn(4, 6), torch.arange(4) % 3),
    )
    kept = kept_by(BatchLoss(model, "cross_entropy"), batch)
    frozen = model.requires_grad_(False)
    assert kept_by(BatchLoss(frozen, "cross_entropy"), batch) == kept > 4 * 50 * 4
    assert not any(parameter.requires_grad for parameter in frozen.parameters())

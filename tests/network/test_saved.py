"""What a pass keeps for the way back: counted once by storage, without the weights."""

import torch
from torch import nn

from brainsurgeon.network.saved import saved


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

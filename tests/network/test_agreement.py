"""Parts that do not give what the whole model gives are told, whatever the loss says of it."""

from __future__ import annotations

import pytest
import torch
from cases import seeded
from networks import Network, every_network, stream_of
from torch import Tensor, nn

from brainsurgeon.network.agreement import parts_agree
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import without_cache
from brainsurgeon.network.partition import Chain
from brainsurgeon.network.streaming import Stream


@every_network
def test_a_chain_that_hands_on_more_than_its_last_state_is_told(network: Network) -> None:
    model = network.model()
    with without_cache(model):
        assert parts_agree(stream_of(network, model)) == network.parts


class Branch(nn.Module):
    """Goes on with what it was given, beside what its block gives."""

    def __init__(self, sure: float):
        super().__init__()
        self.sure, self.first, self.block, self.last = sure, nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return the scores under a name."""
        hidden = self.first(x)
        return {"scores": self.sure * self.last(hidden + self.block(hidden))}


@pytest.mark.parametrize("sure", [1.0, 1e4])
def test_where_the_loss_is_nearly_zero_the_outputs_tell(sure: float) -> None:
    model, inputs = seeded(lambda: Branch(sure), 0), seeded(lambda: torch.randn(1, 6), 1)

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0])["scores"], batch[1])

    batch = inputs, model(inputs)["scores"].argmax(1)
    layers = linear_maps(model, ["first.weight", "block.weight", "last.weight"])
    measured = BatchLoss(model, loss)
    if sure > 1:
        assert float(measured(batch)) < 1e-6
    for names, agree in ((("first",), True), (("first", "block"), False)):
        chain = Chain(names, (None,) * len(names))
        assert parts_agree(Stream(model, measured, [batch], layers, chain, torch.device("cpu"))) is agree

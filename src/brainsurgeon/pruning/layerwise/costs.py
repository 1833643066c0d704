"""What the loss feels of an error in each row: block by block where that is possible, else by the whole network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.held import held_in
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.match import Match
from brainsurgeon.network.modes import frozen
from brainsurgeon.network.output_costs import output_costs
from brainsurgeon.network.streamed_costs import Entangled, streamed_costs
from brainsurgeon.network.streaming import Stream, mean_over_ranks
from brainsurgeon.samples.batches import batch_size, map_tensors

if TYPE_CHECKING:
    from brainsurgeon.pruning.surgery import Surgery

LOADED_WHOLE = "load the model whole, into memory"


def row_costs(wanted: str, surgery: Surgery, loss: BatchLoss, stream: Stream) -> tuple[dict[str, Tensor], float | None]:
    """Return the costs of the rows by layer, and the mean loss where that was seen on the way; none for "none"."""
    if wanted == "none":
        return {}, None
    with frozen(loss.model):
        if isinstance(surgery.loss, Match):  # its own gradient is zero here
            return _whole_costs(surgery, loss, stream), None
        try:
            found, total = streamed_costs(stream)
        except Entangled:
            return _whole_costs(surgery, loss, stream), None
        return found, mean_over_ranks(total, sum(map(batch_size, stream.batches)))


def _whole_costs(surgery: Surgery, loss: BatchLoss, stream: Stream) -> dict[str, Tensor]:
    """Return the costs from backward passes through the whole model on the device."""
    if held_in(loss.model):
        raise BrainsurgeonError(
            "what the loss feels of each row cannot be found block by block for this model and loss: give "
            f'costs="none", or {LOADED_WHOLE}'
        )
    model, home = loss.model, next(loss.model.parameters()).device
    some = [map_tensors(lambda t: t.to(surgery.device), batch) for batch in stream.batches]
    try:
        model.to(surgery.device)
        if isinstance(surgery.loss, Match):
            generator = torch.Generator().manual_seed(surgery.seed)
            drawn = list(surgery.loss.drawn(some, generator))
            return output_costs(surgery.loss.pulled(model, mean=True), stream.layers, drawn)
        return output_costs(loss, stream.layers, some)
    finally:
        model.to(home)

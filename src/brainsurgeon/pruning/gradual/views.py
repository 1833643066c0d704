"""How many views of a training sample the dense network is asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.loss import output_loss
from brainsurgeon.samples.batches import Batch
from brainsurgeon.samples.views import keeps_targets

if TYPE_CHECKING:
    from brainsurgeon.pruning.gradual.method import Gradual
    from brainsurgeon.pruning.surgery import Surgery

SEVERAL = 2
"""Views of a sample where nothing else is said and there may be more than one."""


def count_views(method: Gradual, surgery: Surgery, probe: Batch, few: bool) -> int:
    """Return how many it is asked about: more than one only where they are known to be of the same sample."""
    wanted = method.views
    if wanted is None:
        wanted = 1 if few or method.augment is None or method.distil == 0 else SEVERAL
    if wanted == 1 or _is_of_the_sample(method, surgery, probe):
        return wanted
    if method.views is None:
        return 1
    raise BrainsurgeonError(
        f"{wanted} views of a sample need a loss of classes, outputs with one row of scores a sample, and an `augment` "
        "that leaves the targets as they are: take views=1"
    )


@torch.no_grad()
def _is_of_the_sample(method: Gradual, surgery: Surgery, probe: Batch) -> bool:
    """Say whether the outputs have no places that a view could move, and views have the sample's target."""
    dense = surgery.batch_loss.model
    parts = output_loss(surgery.loss, dense, probe)
    rows = parts is not None and parts.are_scores(parts.outputs(dense, probe))
    return rows and method.augment is not None and keeps_targets(method.augment, probe)

"""Pruning in stages, from a model and data to a result; `staged` holds the loop itself."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .blocks import make_blocks
from .clock import Clock
from .errors import BrainsurgeonError
from .events import Callback, Event, silent
from .examine import CURVATURES
from .loss import BatchLoss, LossLike, check_loss, matching_loss
from .mask import make_budget
from .methods import Method
from .outcome import finish
from .progress import watch
from .recalibrate import recalibrate_norms
from .result import PruningResult
from .sample_loss import SampleLoss
from .samples import TrainingSamples
from .schedule import Stages
from .settings import Settings
from .staged import StagedRun
from .stand import Effort, Keeper
from .steps import moves_weights
from .weights import find_weights


def prune_in_stages(
    model: nn.Module,
    data: Any,
    sparsity: float,
    method: Method,
    loss: LossLike,
    schedule: Stages,
    settings: Settings,
    *,
    effort: Effort | None = None,
    curvature: str = "auto",
    max_samples: int | None = None,
    recalibrate: bool = False,
    budget: str | dict[str, float] = "global",
    in_place: bool = False,
    progress: bool | None = None,
    callback: Callback | None = None,
    keeper: Keeper | None = None,
) -> PruningResult:
    """Prune a little at a time, examining the loss again at each stage; see `brainsurgeon.prune`."""
    if curvature not in (*CURVATURES, "auto"):
        raise BrainsurgeonError(f'curvature must be "auto", "fisher" or "gram", got {curvature!r}')
    effort = effort or Effort()
    if not moves_weights(method):
        schedule = replace(schedule, walks=0)
    effort.share(schedule.looks)  # refuse too few gradients before any work
    weights = find_weights(model, settings.include, settings.exclude)
    make_blocks(settings.blocks, weights, 1)  # refuse a bad rule before any work
    device = torch.device(settings.device or model.get_parameter(weights.names[0]).device)
    dense = copy.deepcopy(model).to(device).eval().requires_grad_(False)
    live = copy.deepcopy(dense)
    batch_loss = BatchLoss(live, loss)
    samples = TrainingSamples(data, settings.seed, device, max_samples)
    held_out = samples.held_out()
    check_loss(batch_loss, held_out[0])
    distance = matching_loss(loss, dense, held_out[0])
    final = make_budget(budget, sparsity, [(la.name, la.offset, la.size) for la in weights.layers], device)
    values = weights.flatten(dense)
    held = SampleLoss(batch_loss, weights, values, held_out, judging=1.0)
    before = held.at(values).loss()
    clock, trace = Clock(device), list[Event]()
    with watch(callback or silent, progress, trace) as notify:
        run = StagedRun(
            batch_loss, BatchLoss(dense, loss), BatchLoss(live, distance) if distance else None, weights, samples,
            method, schedule, effort, curvature, settings.blocks, settings.dtype, settings.seed, notify, clock,
        )  # fmt: skip
        stand = run.run(final, keeper)
    pruned_model = model if in_place else copy.deepcopy(model)
    result = finish(
        pruned_model, weights, stand.pruned, stand.values, final.total,
        sparsity=sparsity,
        method=method.name,
        predicted_change=None,
        loss_before=before,
        loss_after=held.at(stand.values).loss(),
        seconds=clock.seconds,
        settings={
            **settings.record(), "device": str(device), "loss": loss if isinstance(loss, str) else repr(loss),
            "budget": budget, "method": method.describe(), "schedule": vars(schedule) | {}, "curvature": curvature,
            "effort": vars(effort) | {}, "max_samples": max_samples, "recalibrate": recalibrate,
            "sample_gradients": run.gradients_taken, "training_samples": samples.size,
            "held_out_samples": samples.held,
        },
        notes=tuple(dict.fromkeys(run.notes)),
        trace=tuple(trace),
    )  # fmt: skip
    if recalibrate:
        recalibrate_norms(BatchLoss(result.model, loss), samples.draw(samples.size, 0), device)
    return result

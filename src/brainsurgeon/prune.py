"""The product on one page: examine a model, choose what goes, change what stays.

* data, loss → gradients → blocks → curvature → quadratic model, and the sample loss (`Surgery`)
* selection(problem) → pruned; update(problem, pruned) → δw (`operate`)
* weights ← w + δw, exactly 0 on pruned; counted, recorded, given back (`PruningResult`)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .errors import BrainsurgeonError
from .events import Callback
from .gradual import prune_in_stages
from .loss import LossLike
from .mask import exact_count
from .methods import Method, make_method
from .result import PruningResult
from .schedule import Stages
from .settings import Settings
from .stand import Effort, Keeper
from .surgery import Surgery
from .weights import Rule


def prune(
    model: nn.Module,
    data: Any,
    sparsity: float,
    method: str | Method | Sequence[Any] = "cbs",
    loss: LossLike = "cross_entropy",
    *,
    budget: str | dict[str, float] = "global",
    update_scale: float | str | None = None,
    schedule: Stages | int | None = None,
    curvature: str | None = None,
    max_gradients: int | None = None,
    max_seconds: float | None = None,
    max_samples: int | None = None,
    recalibrate: bool = False,
    keeper: Keeper | None = None,
    seed: int = 0,
    in_place: bool = False,
    certifiable: bool = False,
    progress: bool | None = None,
    callback: Callback | None = None,
    include: Rule = None,
    exclude: Rule = None,
    blocks: str | int = "auto",
    num_gradients: int = 1000,
    gradient_batch: int = 1,
    fisher: str = "empirical",
    loss_samples: int = 5000,
    damping: float = 1e-4,
    first_order: bool = False,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    **settings: Any,
) -> PruningResult:
    """Remove ⌈sparsity · N⌉ weights of a trained model so that the loss grows as little as possible.

    Args:
        model: any module; a pruned copy is returned unless `in_place`.
        data: training samples: `(inputs, targets)` or a dict of tensors, a data set, a loader, or batches.
        sparsity: the share of the prunable weights to remove, between 0 and 1.
        method: a name such as "auto" (the best we know: in stages), "cbs", "cbs-s", "wf", "mp", or a pair of a
            selection and an update object.
        loss: a name, a `loss(output, target)`, a `loss(model, batch)` (its first parameter called `model`), or
            "model" where the model's output holds its own loss.
        budget: "global", "uniform" over layers, or {layer pattern: sparsity} with the rest shared by the others.
        update_scale: the part of the update that is taken: a number, or "auto" (chosen on the sample loss).
        schedule: prune in stages with the loss examined again at each: a number of stages (and as many refits) or a
            `Stages`; "auto" takes 15 and 15, and two walks of short steps, `Stages(walks=0)` none.
        curvature: of the stages: "fisher", "gram" (of each layer's inputs) or "auto", decided on held-out samples.
        max_gradients: of a run in stages, sample gradients in all, but for those that a search takes of its own.
        max_seconds: of a run in stages: fewer and larger steps are taken where time is short.
        max_samples: of a run in stages, training samples in all, the held-out fifth among them; by default all there
            are, or 20,000 of a data set or loader.
        recalibrate: take batch-norm statistics again after a run in stages.
        keeper: keeps each finished stage, so that a run can be resumed.
        seed: of all random draws: samples, buckets.
        in_place: change the model itself.
        certifiable: keep the gradients with the result, for `result.certify()`.
        progress: show bars; by default where there is a terminal.
        callback: called with an `Event` as the work goes on.
        include: names, glob patterns or module types to prune (default: all weights of two dimensions or more).
        exclude: names, patterns or types to leave alone.
        blocks: "model", "layer", a largest block size, or "auto": at most 40 weights a gradient row, 8 in stages.
        num_gradients: K, the rows of the Fisher matrix (this and the next five are of one shot: in stages they
            are found on held-out samples, or follow from `max_gradients`).
        gradient_batch: samples whose mean gradient is one row.
        fisher: the labels that the rows are gradients at: "empirical", the data's; "sampled", drawn from what the model
            predicts; "exact", every label by its probability, so that K rows of C classes are K/C samples.
        loss_samples: samples for the sample loss; fresh ones where the data has more than the gradients take.
        damping: λ.
        first_order: carry the mean gradient as a first-order term (the paper takes it as zero).
        device: where to work; by default where the model is.
        dtype: of the stored gradients; bfloat16 halves their memory.
        settings: hyper-parameters of the selection by name, such as num_draws=50, window=10, pool=256.
    """
    chosen = make_method(method, settings, update_scale)
    exact_count(sparsity, 1)  # refuse a bad sparsity before any work
    settings_of_examination = Settings(
        include, exclude, blocks, num_gradients, gradient_batch, fisher, loss_samples, damping, first_order, device,
        dtype, seed,
    )  # fmt: skip
    of_stages = {"curvature": curvature, "max_gradients": max_gradients, "max_seconds": max_seconds,
                 "max_samples": max_samples, "recalibrate": recalibrate or None, "keeper": keeper}  # fmt: skip
    if method == "auto" or schedule is not None:
        if fisher != "empirical":
            raise BrainsurgeonError(f"fisher={fisher!r} is of one shot: leave it out, or the schedule and method auto")
        most = Effort.max_gradients if max_gradients is None else max_gradients
        return prune_in_stages(
            model, data, sparsity, chosen, loss, _stages(schedule), settings_of_examination,
            effort=Effort(most, max_seconds), curvature="auto" if curvature is None else curvature,
            max_samples=max_samples, recalibrate=recalibrate, budget=budget, in_place=in_place, progress=progress,
            callback=callback, keeper=keeper,
        )  # fmt: skip
    if given := [name for name, value in of_stages.items() if value is not None]:
        raise BrainsurgeonError(f'{given[0]} is of runs in stages: give a schedule, or method="auto"')
    surgery = Surgery(
        model, data, loss, settings_of_examination,
        curvature=chosen.uses_curvature or certifiable, progress=progress, callback=callback,
    )  # fmt: skip
    result = surgery.prune(sparsity, chosen, budget=budget, in_place=in_place)
    if certifiable and result.examined is not None:
        return dataclasses.replace(result, examined=result.examined.held())
    return result


def _stages(schedule: Stages | int | None) -> Stages:
    if schedule is None or isinstance(schedule, Stages):
        return schedule or Stages()
    return Stages(schedule, refits=schedule)

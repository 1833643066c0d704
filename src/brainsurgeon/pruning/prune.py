"""The product on one page: prepare → examine → select → update → (again, or train on) → finish.

* `Surgery` prepares: the weights that may go, a copy of the model, its loss, its samples, the device.
* The method examines the loss (gradients, or moments of the layers' inputs), selects what goes and updates what stays:
  `OneShot` once, `Staged` again and again, with training in between.
* `finish` writes w + δw into the model, exactly 0 on `pruned`, counts there, and measures the loss on that model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from brainsurgeon.engine.budget import exact_count
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback
from brainsurgeon.network.loss import LossLike
from brainsurgeon.network.weights import Rule
from brainsurgeon.pruning.goal import Goal
from brainsurgeon.pruning.methods import Method, make_method
from brainsurgeon.pruning.reach import reach
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.surgery import Surgery


def prune(
    model: nn.Module,
    data: Any,
    sparsity: float | None = None,
    method: str | Method | Sequence[Any] = "auto",
    loss: LossLike = "cross_entropy",
    *,
    include: Rule = None,
    exclude: Rule = None,
    budget: str | dict[str, float] = "global",
    seed: int = 0,
    device: str | torch.device | None = None,
    goal: Goal | None = None,
    in_place: bool = False,
    progress: bool | None = None,
    callback: Callback | None = None,
    **settings: Any,
) -> PruningResult:
    """Remove ⌈sparsity · N⌉ weights of a trained model so that the loss grows as little as possible.

    Args:
        model: any module; a pruned copy is returned unless `in_place`.
        data: training samples: `(inputs, targets)` or a dict of tensors, a data set, a loader, or batches; None for a
            method that needs none, as "mp".
        sparsity: the share of the prunable weights to remove, between 0 and 1; None where the budget names all layers.
        method: "auto" tries what may be best and keeps what held-out samples like best (it trains the kept weights,
            unless effort="quick"); another name, such as "layerwise", "gradual", "cbs", "wf" or "mp"; a `OneShot`,
            `Staged`, `Layerwise` or `Gradual` of your own; or a pair of a selection and an update.
        loss: a name, a `loss(output, target)`, a `loss(model, batch)` (its first parameter called `model`), or
            "model" where the model's output holds its own loss.
        include: names, glob patterns or module types to prune (default: every trainable `weight…` or `…weight` of two
            or more dimensions outside normalisation layers; bare parameters by other names, and frozen weights, only if
            they are named here).
        exclude: names, patterns or types to leave alone.
        budget: "global", "uniform" over layers, or {layer pattern: sparsity} with the rest of the sparsity shared by
            the others; the first pattern that means a layer counts.
        seed: of all random draws: samples, buckets.
        device: where to work; by default where the model is.
        goal: in place of a sparsity: what the network must keep, or where it must fit; the sparsity is found.
        in_place: change the model itself.
        progress: show bars; by default where there is a terminal.
        callback: called with an `Event` as the work goes on.
        settings: of the method, by name, such as num_gradients=2000, update_scale=0.5, num_draws=50, schedule=15,
            max_seconds=600; a name that the method does not have is refused.
    """
    chosen = make_method(method, settings)  # bad settings and a bad sparsity are refused before any work
    if goal is not None and (sparsity is not None or not isinstance(goal, Goal)):
        what = f"sparsity={sparsity!r} as well" if isinstance(goal, Goal) else f"goal={goal!r:.60}"
        raise BrainsurgeonError(f"give a sparsity, or a goal as brainsurgeon.Goal(…), and not both; got {what}")
    if goal is None and (sparsity is not None or not isinstance(budget, dict)):
        exact_count(sparsity, 1)  # type: ignore[arg-type]  # None is refused there
    surgery = Surgery(
        model,
        data,
        loss,
        include=include,
        exclude=exclude,
        seed=seed,
        device=device,
        progress=progress,
        callback=callback,
    )
    if goal is not None:
        return reach(surgery, goal, chosen, budget=budget, seed=surgery.seed, in_place=in_place)
    return surgery.prune(sparsity, chosen, budget=budget, in_place=in_place)

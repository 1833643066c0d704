"""Structured pruning on one page: prepare → price the units → choose → remove → fit what stays → measure.

* `prepare` traces the network and finds the groups of units that can go, one unit at a time.
* Each unit's price is exact in the quadratic model of the layers that read it: block OBS, one removal after another.
* The cheapest units for what they save go, until the target is met; swaps improve each group's set.
* The smaller network is made, its layers are fitted to the outputs of the dense one, and both are measured.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.cost.latency import in_turn
from brainsurgeon.cost.macs import count_multiply_adds
from brainsurgeon.engine.layer.units import Reader, removal_cost, removal_order, swapped
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback, Event, silent
from brainsurgeon.events.clock import Clock
from brainsurgeon.events.progress import watch
from brainsurgeon.network.checks import BadSampleError
from brainsurgeon.network.loss import BatchLoss, LossLike
from brainsurgeon.network.modes import own_mode
from brainsurgeon.network.names import listed, unwrapped
from brainsurgeon.network.output_costs import output_costs
from brainsurgeon.network.weights import Rule
from brainsurgeon.pruning.finish import measured_loss
from brainsurgeon.pruning.surgery import Surgery, copied
from brainsurgeon.samples.batches import first
from brainsurgeon.structured.attention import close_attention, open_attention
from brainsurgeon.structured.choose import Curve, choose_counts
from brainsurgeon.structured.fit import Examination, examine_readers, fit_again, statistics_again
from brainsurgeon.structured.prepare import Prepared, example_of, prepare, sample_count
from brainsurgeon.structured.remove import Cuts, cuts_of, remove, widths_without_tensors
from brainsurgeon.structured.result import GroupRecord, ShrinkResult, kept_units
from brainsurgeon.structured.settings import ShrinkSettings
from brainsurgeon.structured.trial import difference, numbers_after, stored_shapes

COSTED = 128
"""Samples whose gradients at the layers' outputs say what an error there costs."""


@own_mode()
def shrink(
    model: nn.Module,
    data: Any,
    *,
    macs: float | None = None,
    parameters: float | None = None,
    units: float | None = None,
    loss: LossLike = "cross_entropy",
    include: Rule = None,
    exclude: Rule = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: bool | None = None,
    callback: Callback | None = None,
    **settings: Any,
) -> ShrinkResult:
    """Remove whole channels, neurons, heads and hidden units, so that a smaller dense network comes out.

    Args:
        model: any module that `torch.export` can trace; it is left as it is.
        data: training samples, in any of the forms that `brainsurgeon.prune` takes.
        macs: the share of the multiply-adds that may stay: 0.5 halves them. Give one of these three.
        parameters: the share of the parameters that may stay.
        units: the share of the units that stays in every group alike.
        loss: as for `brainsurgeon.prune`.
        include: layers whose outputs may be removed, by name, pattern or type; by default all.
        exclude: layers whose outputs stay.
        seed: of the samples that are drawn.
        device: where to work; by default where the model is.
        progress: show bars; by default where there is a terminal.
        callback: called with an `Event` as the work goes on.
        settings: the fields of `ShrinkSettings` by name, such as max_samples=1000, multiple=8, least=0.1.
    """
    chosen = ShrinkSettings.of({"macs": macs, "parameters": parameters, "units": units, **settings})
    opened = copied(unwrapped(model))
    left = open_attention(opened)
    surgery = Surgery(opened, data, loss, include=include, exclude=exclude, seed=seed, device=device)
    trace = list[Event]()
    with watch(callback or silent, progress, trace) as told, (clock := Clock(surgery.device, told)).running():
        with clock.measure("trace"):
            prepared = _prepared(surgery, chosen)
        with clock.measure("prices"):
            examined = _examine(prepared, chosen)
            curves = _curves(prepared, examined, clock.notify)
        with clock.measure("choice"):
            removed = _choose(prepared, examined, curves, chosen)
        with clock.measure("fit"):
            small, cuts = _smaller(prepared, removed, chosen)
        with clock.measure("report"):
            found = _measured(small, prepared, chosen)
    costs = [removal_cost(_readers(prepared, examined, k), gone) for k, gone in enumerate(removed)]
    records = [
        GroupRecord(group.name, group.units, kept_units(gone), group.writers, group.readers, cost)
        for group, gone, cost in zip(prepared.groups, removed, costs, strict=True)
    ]
    return ShrinkResult(
        model=_given_back(small, surgery.original, unwrapped(model), cuts),
        groups=tuple(records),
        seconds=clock.seconds,
        settings=_record(surgery, prepared, chosen),
        left={**left, **prepared.left},
        cuts=cuts,
        trace=tuple(trace),
        **found,
    )


def _prepared(surgery: Surgery, settings: ShrinkSettings) -> Prepared:
    try:
        return prepare(surgery, settings.max_samples, settings.batch)
    except BadSampleError as error:
        raise error.located(surgery.data) from error


def _record(surgery: Surgery, prepared: Prepared, settings: ShrinkSettings) -> dict[str, Any]:
    """Return what was used."""
    common = {"include": surgery.include, "exclude": surgery.exclude, "device": str(surgery.device)}
    shown = {name: value if isinstance(value, str | None) else repr(value) for name, value in common.items()}
    return {**settings.to_dict(), **shown, "seed": surgery.seed, "samples": sample_count(prepared.batches)}


def _examine(prepared: Prepared, settings: ShrinkSettings) -> Examination:
    """Return the moments of what every reader is given, and what the loss feels of an error in its rows."""
    loss, layers = prepared.surgery.batch_loss, prepared.layers(prepared.model)
    readers = {reader for group in prepared.groups for reader in group.readers}
    layers = {name: layer for name, layer in layers.items() if name in readers}
    moments = examine_readers(loss, layers, prepared.batches)
    costs = output_costs(loss, list(layers.values()), list(first(prepared.batches, COSTED)))
    return Examination(layers, moments, costs, prepared.intercepts(), settings.damping)


def _readers(prepared: Prepared, examined: Examination, group: int) -> list[Reader]:
    return examined.readers(prepared.groups[group], prepared.axes)


def _curves(prepared: Prepared, examined: Examination, notify: Callback) -> list[Curve]:
    """Return the order in which each group would lose its units, and at what price."""
    curves = []
    for number, group in enumerate(prepared.groups):
        order, costs = removal_order(_readers(prepared, examined, number))
        curves.append(Curve(tuple(order), tuple(costs)))
        notify(Event("groups", number + 1, len(prepared.groups), {"cost": sum(costs), "units": group.units}))
    return curves


def _choose(prepared: Prepared, examined: Examination, curves: list[Curve], settings: ShrinkSettings) -> list[Tensor]:
    """Return the units that go, True, group by group."""
    size = prepared.parameters if settings.parameters is not None else prepared.multiply_adds
    whole = size.count(prepared.units)
    if settings.units is not None:
        counts = [group.units - max(1, round(settings.units * group.units)) for group in prepared.groups]
    else:
        target = int(whole * settings.share)
        counts = choose_counts(curves, prepared.units, size, target, settings.least, settings.multiple)
    removed = []
    for number, (curve, count) in enumerate(zip(curves, counts, strict=True)):
        gone = torch.zeros(prepared.groups[number].units, dtype=torch.bool)
        gone[list(curve.order[:count])] = True
        removed.append(swapped(_readers(prepared, examined, number), gone, settings.sweeps) if count else gone)
    return removed


def _smaller(prepared: Prepared, removed: list[Tensor], settings: ShrinkSettings) -> tuple[nn.Module, Cuts]:
    """Return the smaller network, its layers fitted to the outputs of the dense one."""
    wrong = difference(prepared.model, prepared.call, prepared.groups, removed, prepared.numbers, prepared.axes)
    if wrong is not None:
        raise BrainsurgeonError(
            f"removing the chosen units failed though a trial had not: {wrong}; exclude some of "
            f"{listed(group.name for group in prepared.groups)}"
        )
    kept = [int((~gone).sum()) for gone in removed]
    numbers = numbers_after(prepared.groups, prepared.numbers, kept)
    cuts = cuts_of(prepared.groups, removed, stored_shapes(prepared.model), numbers)
    model = remove(copy.deepcopy(prepared.model), cuts)
    cuts = Cuts(cuts.kept, {**cuts.numbers, **widths_without_tensors(model, prepared.call.run)})
    small = BatchLoss(remove(model, Cuts({}, cuts.numbers)), prepared.surgery.loss)
    if settings.fit:
        layers, dense = prepared.layers(small.model), prepared.layers(prepared.model)
        fit_again(
            small,
            prepared.surgery.batch_loss,
            layers,
            dense,
            cuts,
            prepared.intercepts(),
            list(first(prepared.batches, settings.fit_samples)),
            settings.damping,
        )
    if settings.statistics:
        statistics_again(small, prepared.batches)
    return small.model, cuts


def _measured(small: nn.Module, prepared: Prepared, settings: ShrinkSettings) -> dict[str, Any]:
    """Run both networks: the losses, the multiply-adds, the parameters and the times."""
    dense, surgery = prepared.model, prepared.surgery
    example, sample = example_of(prepared.call, dense), list(first(prepared.batches, settings.reported))
    both = (dense, small)
    times = in_turn(both, example, settings.seconds) if settings.seconds else None
    losses = [measured_loss(one, surgery.loss, sample, surgery.device) for one in both]
    return {
        "multiply_adds": tuple(count_multiply_adds(one, example, {})[0] for one in both),
        "parameters": tuple(sum(parameter.numel() for parameter in one.parameters()) for one in both),
        "milliseconds": None if times is None else tuple(times),
        "batch": settings.batch,
        "loss_before": losses[0],
        "loss_after": losses[1],
    }


def _given_back(small: nn.Module, opened: nn.Module, model: nn.Module, cuts: Cuts) -> nn.Module:
    """Return the smaller network where the given one is, in its modes, trained where it is trained."""
    found = remove(copied(opened), cuts)
    found.load_state_dict(small.state_dict())
    close_attention(found, model)
    return found

"""Gradients of many groups of samples at once: batched by `torch.func` where that can be trusted, else one by one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.autograd import loss_gradients
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import unread_masks
from brainsurgeon.network.precision import full_precision
from brainsurgeon.samples.batches import Batch, batch_size, cut, map_tensors

Parameters = dict[str, Tensor]
Rows = Callable[[Parameters, Batch], Parameters]
"""From weights and C groups of samples to the C gradients, by parameter name."""
PREFIX = "model."
"""The names of a model's parameters inside its `BatchLoss`."""
TOLERANCE = 0.1
"""Kernels of reduced precision differ by per cents in deep networks, a wrong gradient by more."""
FLOOR = 1e-6
"""A layer's gradient that is so small beside the whole one is rounding."""


def choose_rows(batch_loss: BatchLoss, parameters: Parameters, groups: Batch) -> tuple[Rows, tuple[str, ...]]:
    """Choose batched gradients where `torch.func` can transform the model and agrees with autograd, else a loop."""
    probe = cut(groups, slice(2))
    batched, one_by_one = _ways(batch_loss)
    with full_precision():
        expected = one_by_one(parameters, probe)
        try:
            found = batched(parameters, probe)
        except BrainsurgeonError:
            raise
        except Exception as problem:  # torch.func raises all kinds for what it cannot transform
            reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
        else:
            if _agree(found, expected) or _agree_in_double(batch_loss, parameters, probe):
                return batched, ()
            reason = "batched gradients differ from single ones"
    return one_by_one, (
        f"gradients are taken one by one, which is slower: torch.func cannot batch this model ({reason})",
    )


def _ways(batch_loss: BatchLoss) -> tuple[Rows, Rows]:
    places = _places(batch_loss)

    def loss(parameters: Parameters, group: Batch) -> Tensor:
        ids = {name: id(batch_loss.get_parameter(name)) for name in parameters}
        everywhere = {place: value for name, value in parameters.items() for place in places[ids[name]]}
        return functional_call(batch_loss, everywhere, (group,), tie_weights=False)

    transformed = vmap(grad(loss), in_dims=(None, 0))

    def batched(parameters: Parameters, groups: Batch) -> Parameters:
        with (
            unread_masks(),
            warnings.catch_warnings(),
        ):  # that a rule is missing and a loop is slower is no news to a user
            warnings.filterwarnings("ignore", message="There is a performance drop")
            return transformed(parameters, groups)

    def one_by_one(parameters: Parameters, groups: Batch) -> Parameters:
        names = [name.removeprefix(PREFIX) for name in parameters]
        rows = [loss_gradients(batch_loss, names, cut(groups, k)) for k in range(batch_size(groups))]
        return {name: torch.stack([row[name.removeprefix(PREFIX)] for row in rows]) for name in parameters}

    return batched, one_by_one


def _places(batch_loss: BatchLoss) -> dict[int, list[str]]:
    """Return where each parameter is held: tied in several modules, but a module of several names once.

    `functional_call` itself would swap a module of two names twice, and leave it swapped.
    """
    seen: set[tuple[int, str]] = set()
    places: dict[int, list[str]] = {}
    for name, parameter in batch_loss.named_parameters(remove_duplicate=False):
        owner, _, own = name.rpartition(".")
        key = (id(batch_loss.get_submodule(owner)), own)
        if key not in seen:
            seen.add(key)
            places.setdefault(id(parameter), []).append(name)
    return places


def _agree(found: Parameters, expected: Parameters) -> bool:
    """Compare layer by layer, relative to the layer's own gradient; what is rounding of the whole one is let go."""
    whole = sum(float(value.double().square().sum()) for value in expected.values()) ** 0.5
    return all(_close(found[name], value, FLOOR * whole) for name, value in expected.items())


def _close(found: Tensor, expected: Tensor, floor: float) -> bool:
    tolerance = max(TOLERANCE, 8 * torch.finfo(expected.dtype).eps)  # half precision rounds more
    found, expected = found.double(), expected.double()
    return bool((found - expected).norm() <= tolerance * expected.norm() + floor)


def _agree_in_double(batch_loss: BatchLoss, parameters: Parameters, probe: Batch) -> bool:
    """Ask again in float64: near an optimum gradients are small differences of numbers that float32 has rounded."""
    try:
        precise = copy.deepcopy(batch_loss).double()
        wide = {name: value.double() for name, value in parameters.items()}
        samples = map_tensors(lambda t: t.double() if t.is_floating_point() else t, probe)
        batched, one_by_one = _ways(precise)
        return _agree(batched(wide, samples), one_by_one(wide, samples))
    except Exception:  # a model may be bound to its type, or not be copied: then the first answer stands
        return False

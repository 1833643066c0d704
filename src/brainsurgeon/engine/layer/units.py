"""Whole units of inputs removed at once: block OBS over all layers that read them, with the update of what stays.

A unit is a block of columns in each of its readers y = Wx. With A = E[xxᵀ] of a reader and V its rows times √c_o,
removing the columns P of a set of units and fitting the others anew costs ½tr(V_P([A⁻¹]_PP)⁻¹V_Pᵀ), summed over the
readers. One unit more or less changes A⁻¹ and V by a block of rank k, so that all next costs are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import pulse


@dataclass(frozen=True)
class Reader:
    """One reader: V (R×m, rows times √c_o), A (m×m, damped) and the columns of each unit (units×k)."""

    weights: Tensor
    moments: Tensor
    columns: Tensor


class Removal:
    """A set of removed units, with A_KK⁻¹ and the fitted weights of each reader; one unit at a time goes or returns."""

    def __init__(self, readers: Sequence[Reader]):
        self.readers = readers
        self.units = len(readers[0].columns)
        self.removed = torch.zeros(self.units, dtype=torch.bool)
        self._inverses = [_inverse(reader.moments) for reader in readers]
        self._fitted = [reader.weights.clone() for reader in readers]

    def costs(self) -> Tensor:
        """Return what the removal of each unit would cost now; infinite for one that is gone."""
        pulse()
        total = torch.zeros(self.units, dtype=torch.float64, device=self._fitted[0].device)
        alive = (~self.removed).nonzero().squeeze(1).to(total.device)
        for reader, inverse, fitted in zip(self.readers, self._inverses, self._fitted, strict=True):
            columns = reader.columns[alive]
            blocks = inverse[columns.unsqueeze(2), columns.unsqueeze(1)]
            values = fitted.T[columns]  # units × k × R
            solved = torch.linalg.solve(blocks, values)
            total[alive] += (solved * values).sum((1, 2)) / 2
        total[self.removed.to(total.device)] = torch.inf
        return total

    def remove(self, unit: int) -> None:
        """Let a unit go: the other columns take over what they can."""
        pulse()
        for reader, inverse, fitted in zip(self.readers, self._inverses, self._fitted, strict=True):
            columns = reader.columns[unit]
            carry = torch.linalg.solve(inverse[columns][:, columns], inverse[columns])  # k × m
            fitted -= fitted[:, columns] @ carry
            inverse -= inverse[:, columns] @ carry
            fitted[:, columns] = 0.0
            inverse[columns] = 0.0
            inverse[:, columns] = 0.0
        self.removed[unit] = True

    def restore(self, unit: int) -> None:
        """Take a unit back: A_KK⁻¹ grows by its block, and the weights are fitted with it."""
        for reader, inverse, fitted in zip(self.readers, self._inverses, self._fitted, strict=True):
            columns = reader.columns[unit]
            across = inverse @ reader.moments[:, columns]  # m × k, zero where columns are gone
            own = torch.linalg.inv(reader.moments[columns][:, columns] - reader.moments[columns] @ across)
            missing = (reader.weights - fitted) @ reader.moments[:, columns]
            step = missing @ own
            fitted -= step @ across.T
            fitted[:, columns] = step
            inverse += across @ own @ across.T
            inverse[:, columns] = -across @ own
            inverse[columns] = -own @ across.T
            inverse[columns.unsqueeze(1), columns] = own
        self.removed[unit] = False


def removal_order(readers: Sequence[Reader]) -> tuple[list[int], list[float]]:
    """Return the units in the order in which a greedy removal takes them, and what each then costs; one stays."""
    state, order, costs = Removal(readers), [], []
    for _ in range(state.units - 1):
        now = state.costs()
        unit = int(now.argmin())
        order.append(unit)
        costs.append(max(float(now[unit]), 0.0))
        state.remove(unit)
    return order, costs


def swapped(readers: Sequence[Reader], removed: Tensor, sweeps: int = 2) -> Tensor:
    """Return as many units that cost no more: a removed one is taken back where another is cheaper to lose."""
    state = Removal(readers)
    for unit in removed.nonzero().squeeze(1).tolist():
        state.remove(unit)
    for _ in range(sweeps):
        changed = False
        for unit in state.removed.nonzero().squeeze(1).tolist():
            state.restore(unit)
            costs = state.costs()
            best = int(costs.argmin())
            best = best if float(costs[best]) < float(costs[unit]) * (1 - 1e-9) else unit
            state.remove(best)
            changed = changed or best != unit
        if not changed:
            break
    return state.removed


def removal_cost(readers: Sequence[Reader], removed: Tensor) -> float:
    """Return ½Σ tr(V_P([A⁻¹]_PP)⁻¹V_Pᵀ) of a set of units."""
    total = 0.0
    for reader in readers:
        columns = reader.columns[removed.to(reader.columns.device)].reshape(-1)
        if columns.numel():
            block, values = _inverse(reader.moments)[columns][:, columns], reader.weights[:, columns]
            total += float((torch.linalg.solve(block, values.T) * values.T).sum()) / 2
    return total


def _inverse(moments: Tensor) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(moments)
    if bool(failed.any()):
        raise BrainsurgeonError("the moments of a layer's inputs could not be factored: raise the damping")
    return torch.cholesky_inverse(factor)

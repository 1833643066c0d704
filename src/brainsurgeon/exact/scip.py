"""The paper's quadratic programs for SCIP: CBS with indicator constraints, and CBS-S dense and lifted.

All costs are divided by that of the start, so that the solver's absolute tolerances mean something, and every cost that
is reported is computed again from the set that was found.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from brainsurgeon.exact.branch import Outcome
from brainsurgeon.exact.extra import solver
from brainsurgeon.exact.instance import Array, Instance

STATUS = {"optimal": "optimal", "gaplimit": "optimal", "timelimit": "time limit", "userinterrupt": "interrupted"}
FEASIBILITY = 1e-7
GAP = 1e-6
"""Costs closer than this, relative to the start's, are equal to SCIP here: its own tolerances are of that size."""


def lifted_selection(instance: Instance, count: int, start: Array, deadline: float) -> Outcome:
    """CBS-S with z = F(w∘y) free: min ½‖z‖² + ½λΣw_i²y_i + cᵀy with H = FᵀF + λI; the square has few terms."""
    program = _Program(deadline)
    unit = _unit(instance.selection_cost(start), instance.quadratic_form)
    factor, damping = instance.factor
    rows = factor * instance.weights / np.sqrt(unit)
    y = program.selection(count, start)
    z = program.variables("z", rows @ start)
    program.equal(z, rows, y)
    linear = (damping * instance.weights**2 / 2 + instance.linear_form) / unit
    program.minimise(y, linear, sum(v * v for v in z) / 2, float((rows @ start) @ (rows @ start)) / 2 + linear @ start)
    return program.outcome(y, unit, instance.selection_cost)


def dense_selection(instance: Instance, count: int, start: Array, deadline: float) -> Outcome:
    """CBS-S as it is printed (equation 6): min ½ΣΣ w̄_iy_iH_ijw̄_jy_j."""
    program = _Program(deadline)
    unit = _unit(instance.selection_cost(start), instance.quadratic_form)
    matrix, linear = instance.quadratic_form / unit, instance.linear_form / unit
    y = program.selection(count, start)
    pairs = [(i, j) for i in range(instance.size) for j in range(i + 1)]
    square = sum((matrix[i, j] if i != j else matrix[i, i] / 2) * y[i] * y[j] for i, j in pairs)
    program.minimise(y, linear, square, float(start @ matrix @ start) / 2 + linear @ start)
    return program.outcome(y, unit, instance.selection_cost)


def joint_program(instance: Instance, count: int, start: Array, deadline: float) -> Outcome:
    """CBS (equations 2 to 5): the weights x and y_i → x_i = 0, min ½‖F(x − v)‖² + ½λ‖x − v‖².

    A set that costs no more than the start's C keeps |x_i − v_i| ≤ √(2C[H⁻¹]_ii): that bounds x.
    """
    program = _Program(deadline)
    height = instance.joint_cost(start) - instance.floor
    unit = _unit(height, instance.hessian * instance.centre**2)
    factor, damping = instance.factor
    reach = np.sqrt(2 * height * instance.inverse_diagonal) * 1.001 + 1e-9
    centre, rows = instance.centre, factor / np.sqrt(unit)
    y = program.selection(count, start)
    step = instance.weights + instance.update(start) - centre
    d = program.variables("d", step, -reach, reach)
    z = program.variables("z", rows @ step)
    program.equal(z, rows, d)
    for i, centre_i in enumerate(centre):
        program.model.addConsIndicator(d[i] <= -centre_i, y[i])
        program.model.addConsIndicator(-d[i] <= centre_i, y[i])
    ridge = damping / unit
    square = (sum(v * v for v in z) + ridge * sum(v * v for v in d)) / 2
    program.minimise(y, np.zeros(instance.size), square, height / unit)
    return program.outcome(y, unit, instance.joint_cost, instance.floor)


def _unit(cost: float, scale: Array) -> float:
    """Return what costs are divided by: the start's cost, or where that is (nearly) nothing a typical one."""
    return max(abs(cost), 1e-9 * float(np.abs(np.diag(scale)).max()), 1e-300)


class _Program:
    """A SCIP model with 0-1 variables y, Σy = n, whose start is a known solution."""

    def __init__(self, deadline: float):
        scip = solver("pyscipopt")
        self.model, self._sum = scip.Model(), scip.quicksum
        self.model.hideOutput()
        self.model.setParam("limits/time", max(0.0, deadline - time.perf_counter()))
        self.model.setParam("numerics/feastol", FEASIBILITY)
        self.model.setParam("limits/gap", GAP)
        self.model.setParam("parallel/maxnthreads", 1)
        self._known: list[tuple[Any, float]] = []
        self._start = np.zeros(0, dtype=bool)

    def selection(self, count: int, start: Array) -> list[Any]:
        self._start = start
        y = [self.model.addVar(f"y{i}", vtype="B") for i in range(start.size)]
        self.model.addCons(self._sum(y) == count)
        self._known += list(zip(y, start.astype(float), strict=True))
        return y

    def variables(self, name: str, values: Array, low: Array | None = None, high: Array | None = None) -> list[Any]:
        made = [
            self.model.addVar(
                f"{name}{i}", lb=None if low is None else float(low[i]), ub=None if high is None else float(high[i])
            )
            for i in range(values.size)
        ]
        self._known += list(zip(made, values, strict=True))
        return made

    def equal(self, left: list[Any], matrix: Array, right: list[Any]) -> None:
        """Left = matrix · right."""
        for variable, row in zip(left, matrix, strict=True):
            self.model.addCons(variable == self._sum(float(a) * x for a, x in zip(row, right, strict=True)))

    def minimise(self, y: list[Any], linear: Array, square: Any, value: float) -> None:
        """Minimise linearᵀy + t with t ≥ square; SCIP's own objective is linear. `value` is the start's cost."""
        t = self.model.addVar("t", lb=0.0)
        self.model.addCons(square <= t)
        self._known.append((t, max(0.0, value - float(linear @ self._start))))
        self.model.setObjective(self._sum(float(a) * v for a, v in zip(linear, y, strict=True)) + t)

    def outcome(self, y: list[Any], unit: float, cost: Any, floor: float = 0.0) -> Outcome:
        model = self.model
        known = model.createSol()
        for variable, value in self._known:
            model.setSolVal(known, variable, float(value))
        model.addSol(known)
        model.optimize()
        status = STATUS.get(model.getStatus(), f"SCIP: {model.getStatus()}")
        best, objective = self._start, cost(self._start)
        if model.getNSols():
            solution = model.getBestSol()
            found = np.array([solution[v] > 0.5 for v in y])
            if cost(found) < objective:
                best, objective = found, cost(found)
        lower = model.getDualbound() * unit + floor
        return Outcome(best, objective, lower, status, int(model.getNTotalNodes()))

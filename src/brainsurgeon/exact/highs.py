"""The paper's linear and continuous programs for HiGHS: CBS-S linearised after Padberg, and CBS-U."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from brainsurgeon.exact.branch import Outcome
from brainsurgeon.exact.extra import solver
from brainsurgeon.exact.instance import Array, Instance

STATUS = {
    "kOptimal": "optimal",
    "kTimeLimit": "time limit",
    "kInterrupt": "interrupted",
    "kHighsInterrupt": "interrupted",
}


@dataclass(frozen=True, eq=False)
class Answer:
    """What HiGHS found; `values` is None where it found nothing."""

    values: Array | None
    bound: float
    status: str
    nodes: int


@dataclass(frozen=True, eq=False)
class Rows:
    """Constraints low ≤ Ax ≤ high, with A by rows: `starts` says where each row begins in `columns` and `values`."""

    starts: Array
    columns: Array
    values: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, rows: list[tuple[list[int], list[float], float, float]]) -> Rows:
        """Collect (columns, values, low, high) rows."""
        lengths = [len(row[0]) for row in rows]
        return cls(
            np.cumsum([0, *lengths]).astype(np.int32),
            np.array([j for row in rows for j in row[0]], np.int32),
            np.array([v for row in rows for v in row[1]], float),
            np.array([row[2] for row in rows]),
            np.array([row[3] for row in rows]),
        )


def run(
    cost: Array,
    low: Array,
    high: Array,
    rows: Rows,
    whole: Array,
    deadline: float,
    start: Array | None = None,
    hessian: Array | None = None,
) -> Answer:
    """Minimise costᵀx + ½xᵀHx in a box under linear constraints; x is whole where `whole` says so."""
    highspy = solver("highspy")
    highs = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("mip_rel_gap", 1e-9),
        ("mip_abs_gap", 1e-12),
        ("mip_feasibility_tolerance", 1e-9),
        ("primal_feasibility_tolerance", 1e-9),
        ("dual_feasibility_tolerance", 1e-9),
        ("time_limit", max(0.0, deadline - time.perf_counter())),
    ):
        highs.setOptionValue(option, value)
    highs.passModel(_model(highspy, cost, low, high, rows, whole, hessian))
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = list(map(float, start))
        highs.setSolution(solution)
    _run_interruptibly(highs)
    return _answer(highs)


def _model(highspy: Any, cost: Array, low: Array, high: Array, rows: Rows, whole: Array, hessian: Array | None) -> Any:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = cost.size, rows.low.size
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, low, high
    lp.row_lower_, lp.row_upper_ = rows.low, rows.high
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = rows.starts, rows.columns, rows.values
    if whole.any():
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if w else kinds.kContinuous for w in whole]
    model = highspy.HighsModel()
    model.lp_ = lp
    if hessian is not None:
        columns, entries = np.nonzero(np.triu(np.ones_like(hessian, dtype=bool)))
        model.hessian_.dim_, model.hessian_.format_ = len(hessian), highspy.HessianFormat.kTriangular
        model.hessian_.start_ = np.searchsorted(columns, np.arange(len(hessian) + 1)).astype(np.int32)
        model.hessian_.index_, model.hessian_.value_ = entries.astype(np.int32), hessian[columns, entries]
    return model


def _run_interruptibly(highs: Any) -> None:
    """Run in a thread, so that Ctrl-C can ask it to stop and the incumbent is still had."""
    highs.HandleUserInterrupt = True
    highs.startSolve()
    done = False
    while not done:
        try:
            done = highs.wait(0.1)[0]
        except KeyboardInterrupt:
            highs.cancelSolve()


def _answer(highs: Any) -> Answer:
    info, solution = highs.getInfo(), highs.getSolution()
    name = highs.getModelStatus().name
    values = np.array(solution.col_value) if solution.value_valid else None
    bound = info.mip_dual_bound if info.mip_node_count >= 0 else info.objective_function_value
    return Answer(values, float(bound), STATUS.get(name, f"HiGHS: {name[1:]}"), max(0, int(info.mip_node_count)))


def linearised(instance: Instance, count: int, start: Array, deadline: float) -> Outcome:
    """CBS-S as a MILP: y_iy_j becomes z_ij with z ≤ y_i, z ≤ y_j, z ≥ y_i + y_j − 1 (Padberg).

    z is left continuous: where y is whole, these make it so.
    """
    size, matrix = instance.size, instance.quadratic_form
    unit = max(abs(instance.selection_cost(start)), 1e-9 * float(np.diag(matrix).max()), 1e-300)
    i, j = np.triu_indices(size, 1)
    rows = [(list(range(size)), [1.0] * size, float(count), float(count))]
    for k, (a, b) in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
        z = size + k
        rows += [
            ([z, a], [1.0, -1.0], -np.inf, 0.0),
            ([z, b], [1.0, -1.0], -np.inf, 0.0),
            ([a, b, z], [1.0, 1.0, -1.0], -np.inf, 1.0),
        ]
    cost = np.concatenate([np.diag(matrix) / 2 + instance.linear_form, matrix[i, j]]) / unit
    whole = np.arange(cost.size) < size
    first = np.concatenate([start, start[i] & start[j]]).astype(float)
    answer = run(cost, np.zeros(cost.size), np.ones(cost.size), Rows.of(rows), whole, deadline, first)
    best, objective = start, instance.selection_cost(start)
    if answer.values is not None:
        found = answer.values[:size] > 0.5
        if found.sum() == count and instance.selection_cost(found) < objective:
            best, objective = found, instance.selection_cost(found)
    return Outcome(best, objective, answer.bound * unit, answer.status, answer.nodes)


def update_program(instance: Instance, count: int, start: Array, deadline: float) -> Outcome:
    """CBS-U as a QP: min ½(x−v)ᵀH(x−v) with x = 0 on P. Its optimum is known in closed form, and is the bound."""
    closed = instance.joint_cost(start)
    unit = max(closed - instance.floor, 1e-300)
    free = np.where(start, 0.0, np.inf)
    none = Rows.of([])
    right = -instance.hessian @ instance.centre / unit
    answer = run(right, -free, free, none, np.zeros(start.size, bool), deadline, None, instance.hessian / unit)
    delta = None if answer.values is None else np.where(start, 0.0, answer.values) - instance.weights
    objective = closed if delta is None else instance.step_cost(delta)
    return Outcome(start, objective, closed, answer.status, None, delta)

"""One call for every exact formulation of pruning."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.exact.benders import benders
from brainsurgeon.exact.branch import Outcome, branch_and_bound
from brainsurgeon.exact.certified import Certified
from brainsurgeon.exact.highs import linearised, update_program
from brainsurgeon.exact.incumbent import lowest, rounded, swap_descent
from brainsurgeon.exact.instance import Array, Instance, as_instance
from brainsurgeon.exact.joint_relaxation import rough_joint, tight_joint
from brainsurgeon.exact.quadratic_program import minimise
from brainsurgeon.exact.scip import dense_selection, joint_program, lifted_selection
from brainsurgeon.exact.selection_relaxation import rough_selection
from brainsurgeon.exact.tangent import Relaxation


def branch_selection(instance: Instance, count: int, start: Array, deadline: float) -> Outcome:
    """CBS-S by branch and bound."""
    return minimise(instance.quadratic_form, instance.linear_form, start, deadline)


def branch_joint(instance: Instance, count: int, start: Array, deadline: float) -> Outcome:
    """CBS by branch and bound."""
    relaxation = tight_joint(instance, count, instance.joint_cost(start) - instance.floor, deadline)
    return branch_and_bound(relaxation, rounded(relaxation, start), deadline)


@dataclass(frozen=True)
class Formulation:
    """Which cost is minimised, and how: from an instance, a count, a good start and a deadline."""

    cost: str
    solver: Callable[[Instance, int, Array, float], Outcome]


FORMULATIONS = {
    "branch-and-bound": Formulation("joint", branch_joint),
    "branch-and-bound-s": Formulation("selection", branch_selection),
    "cbs": Formulation("joint", joint_program),
    "benders": Formulation("joint", benders),
    "cbs-s": Formulation("selection", lifted_selection),
    "cbs-s-dense": Formulation("selection", dense_selection),
    "cbs-s-linear": Formulation("selection", linearised),
    "cbs-u": Formulation("joint", update_program),
}


def solve(
    problem: Instance | Problem | QuadraticModel,
    count: int,
    formulation: str = "branch-and-bound",
    time_limit: float = 60.0,
    start: Any = None,
) -> Certified:
    """Prune exactly `count` weights at the least cost, with a proof or an honest gap.

    Args:
        problem: a `brainsurgeon.Problem`, a `QuadraticModel`, or an `Instance` built from gradients.
        count: the number of weights to prune.
        formulation: "branch-and-bound" (CBS, selection and update together), "branch-and-bound-s" (CBS-S, selection
            alone), or the paper's programs for a solver of the extra `exact`: "cbs", "benders", "cbs-s" (lifted),
            "cbs-s-dense", "cbs-s-linear", and "cbs-u", the best update for the selection `start`.
        time_limit: seconds; when they are over, or on Ctrl-C, the best pruning so far is returned with its bound.
        start: a mask to start from; for "cbs-u" the selection itself (by default the solution of CBS-S).
    """
    began = time.perf_counter()
    if formulation not in FORMULATIONS:
        names = ", ".join(FORMULATIONS)
        raise BrainsurgeonError(f"unknown formulation {formulation!r}; the formulations are: {names}")
    chosen, instance = FORMULATIONS[formulation], as_instance(problem)
    _check(instance, count, time_limit)
    deadline = began + time_limit
    given = None if start is None else _mask(start, instance, count)
    if count in (0, instance.size):
        outcome = _only_choice(instance, count, chosen.cost)
    elif formulation == "cbs-u":
        chosen_set = solve(instance, count, "branch-and-bound-s", time_limit).pruned.numpy() if given is None else given
        outcome = update_program(instance, count, chosen_set, deadline)
    else:
        outcome = _interruptible(chosen, instance, count, given, deadline)
    return _certified(instance, outcome, formulation, chosen.cost, time.perf_counter() - began)


def starting_set(instance: Instance, count: int, cost: str, given: Array | None = None) -> Array:
    """Return the best of magnitude, the single weights' costs and what was given, each improved by swaps."""
    relaxation: Relaxation
    if cost == "selection":
        relaxation = rough_selection(instance.quadratic_form, instance.linear_form, count)
        single = np.diag(instance.quadratic_form)
    else:
        relaxation = rough_joint(instance, count)
        single = instance.centre**2 / instance.inverse_diagonal
    starts = [lowest(np.abs(instance.weights), count), lowest(single, count)]
    starts += [] if given is None else [given]
    return min((swap_descent(relaxation, start) for start in starts), key=lambda pair: pair[1])[0]


def _interruptible(
    chosen: Formulation, instance: Instance, count: int, given: Array | None, deadline: float
) -> Outcome:
    """Solve from a good start; where Ctrl-C comes before there is anything better, the start is the answer."""
    start = lowest(np.abs(instance.weights), count) if given is None else given
    try:
        start = starting_set(instance, count, chosen.cost, given)
        return chosen.solver(instance, count, start, deadline)
    except KeyboardInterrupt:
        cost = instance.selection_cost if chosen.cost == "selection" else instance.joint_cost
        return Outcome(start, cost(start), instance.floor, "interrupted")


def _certified(instance: Instance, outcome: Outcome, formulation: str, cost: str, seconds: float) -> Certified:
    if cost == "selection":
        delta = np.where(outcome.pruned, -instance.weights, 0.0)
    else:
        delta = instance.update(outcome.pruned) if outcome.delta is None else outcome.delta
    objective = instance.step_cost(delta)  # a relaxation gives it with rounding of its own
    lower = objective if outcome.lower >= outcome.objective else max(outcome.lower, instance.floor)
    return Certified(
        pruned=torch.from_numpy(outcome.pruned.copy()),
        delta=torch.from_numpy(delta),
        objective=objective,
        lower_bound=min(lower, objective),  # no step at all costs less than the floor
        status=outcome.status,
        formulation=formulation,
        cost=cost,
        seconds=seconds,
        nodes=outcome.nodes,
    )


def _only_choice(instance: Instance, count: int, cost: str) -> Outcome:
    pruned = np.full(instance.size, count > 0)
    objective = instance.selection_cost(pruned) if cost == "selection" else instance.joint_cost(pruned)
    return Outcome(pruned, objective, objective, "optimal")


def _mask(start: Any, instance: Instance, count: int) -> Array:
    mask = np.asarray(start)
    if mask.dtype != bool or mask.shape != (instance.size,) or mask.sum() != count:
        raise BrainsurgeonError(
            f"start must be a boolean mask of {instance.size} entries with {count} of them True (pruned), "
            f"got {mask.dtype} of shape {mask.shape} with {int(mask.sum())}"
        )
    return mask


def _check(instance: Instance, count: int, time_limit: float) -> None:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 0 <= count <= instance.size:
        raise BrainsurgeonError(
            f"no pruning has this count: it must be a whole number from 0 to {instance.size}, the number of weights, "
            f"got {count!r}"
        )
    if not time_limit >= 0:
        raise BrainsurgeonError(f"time_limit must be a number of seconds, 0 or more, got {time_limit!r}")

"""CBS-S with fractions of weights allowed, for networks of any size: products with H and sorting, nothing else.

Move the part u_i = λw_i² of the curvature, λ its smallest eigenvalue, into the linear term, where it costs the same at
0-1 points. What remains, f(y) = ½yᵀ(M − diag u)y + lᵀy with l = ½u − a∘w, is convex. At any ŷ the tangent lies below f,
and its minimum over the masks is found by sorting: with H = FᵀF + λI that is the Lagrangian bound with the multipliers
Fŷ for z = Fy, and the best of them is the value of the continuous relaxation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from brainsurgeon.engine.budget import Budget
from brainsurgeon.engine.curvature import Curvature, Fisher
from brainsurgeon.engine.curvature.factor import Factor
from brainsurgeon.engine.curvature.streaming import combine, project
from brainsurgeon.engine.quadratic import QuadraticModel

DENSE = 1500
"""Weights of the largest block whose smallest eigenvalue is computed; beyond it the damping serves."""
SETTLED = 5e-4
"""The relaxation is solved when its value and its bound are this close, relative to the cost."""
CHECK_EVERY = 10
OVER_RELAXATION = 1.6
POWER_STEPS = 12


class Continuous:
    """f over {0 ≤ y ≤ 1, Σy = n in each group of the budget}; `lower` is the best bound met so far."""

    def __init__(self, quadratic: QuadraticModel, budget: Budget):
        self.quadratic, self.budget = quadratic, budget
        w = quadratic.w
        self._least = [least_eigenvalue(curvature) for curvature in quadratic.curvatures]
        sizes = [curvature.size for curvature in quadratic.curvatures]
        spread = [w.new_full((size,), least) for size, least in zip(sizes, self._least, strict=True)]
        self.shift = torch.cat(spread) * w.square()
        self.slope = self.shift / 2 - (0.0 if quadratic.linear is None else quadratic.linear * w)
        self.lower, self.steps = -float("inf"), 0
        self.point = torch.zeros_like(w)
        """The best relaxed mask so far, once `minimise` has run."""

    def minimise(self, pruned: Tensor, objective: float, deadline: float) -> str:
        """Start from a mask and work until the relaxation is solved or the deadline."""
        if all(isinstance(curvature, Fisher) for curvature in self.quadratic.curvatures):
            return self._by_splitting(pruned.double(), objective, deadline)
        return self._by_gradients(pruned.double(), objective, deadline)

    def least(self, costs: Tensor) -> float:
        """Return the least cost·y over the masks."""
        pairs = zip(self.budget.groups, self.budget.counts, strict=True)
        return sum(float(costs[group].topk(count, largest=False).values.sum()) for group, count in pairs if count)

    def image(self, y: Tensor) -> Tensor:
        """(M − diag u)y."""
        w = self.quadratic.w
        return w * self.quadratic.product(w * y) - self.shift * y

    def _value(self, y: Tensor, image: Tensor) -> float:
        return float(y @ (image / 2 + self.slope))

    def _observe(self, y: Tensor, image: Tensor) -> None:
        """Take the tangent at y: f(y) + min g·(m − y) over masks m, with g = Ay + l, is min g·m − ½y·Ay."""
        self.lower = max(self.lower, self.least(image + self.slope) - float(y @ image) / 2)

    def _by_splitting(self, y: Tensor, objective: float, deadline: float) -> str:
        """Alternate between f with a penalty, a linear system of size K that is factored once, and the projection."""
        pairs = zip(self.quadratic.curvatures, self._least, strict=True)
        w = self.quadratic.w
        # What is as good as zero costs next to nothing and cannot be divided by; the bounds see every weight as it is.
        # Weights this far below the largest drown in the rounding of the stored gradients.
        tiny = max(torch.finfo(c.columns.dtype).eps for c in self.quadratic.curvatures if isinstance(c, Fisher)) ** 0.5
        dead = w.abs() <= tiny * w.abs().max()
        alive = [~dead[block] for block in self.quadratic.blocks]
        systems = [_System(c, least, a) for (c, least), a in zip(pairs, alive, strict=True) if isinstance(c, Fisher)]
        penalty = torch.cat([w.new_full((system.fisher.size,), system.theta) for system in systems]) * w.square()
        penalty = penalty.clamp_min(1e-12 * float(penalty.max()))
        x, dual = y, torch.zeros_like(y)
        self.point = y
        self._observe(y, self.image(y))
        while time.perf_counter() < deadline:
            target = x - dual
            right = torch.where(dead, 0.0, (penalty * target - self.slope) / w)
            parts = [s.solve(right[b]) for s, b in zip(systems, self.quadratic.blocks, strict=True)]
            y = torch.where(dead, target, torch.cat(parts) / w)
            ahead = OVER_RELAXATION * y + (1 - OVER_RELAXATION) * x + dual
            x = self.project(ahead, penalty)
            dual = ahead - x
            self.steps += 1
            if self.steps % CHECK_EVERY == 0 and self._settled(x, y, objective):
                return "relaxation solved"
        self._settled(x, y, objective)
        return "time limit"

    def _settled(self, x: Tensor, y: Tensor, objective: float) -> bool:
        self.point = x
        self._observe(y, self.image(y))
        return self._value(x, self.image(x)) - self.lower <= SETTLED * abs(objective)

    def _by_gradients(self, y: Tensor, objective: float, deadline: float) -> str:
        """Take accelerated projected gradient steps in the metric of M's diagonal, for any other curvature."""
        self.point = y
        metric = self._metric()
        image = self.image(y)
        value, ahead, ahead_image, momentum = self._value(y, image), y, image, 1.0
        while time.perf_counter() < deadline:
            self._observe(ahead, ahead_image)
            self.steps += 1
            if value - self.lower <= SETTLED * abs(objective):
                return "relaxation solved"
            new = self.project(ahead - (ahead_image + self.slope) / metric, metric)
            new_image = self.image(new)
            new_value = self._value(new, new_image)
            if new_value > value:  # the momentum overshot: start it anew from the best point
                metric = metric * (2 if momentum == 1.0 else 1)
                ahead, ahead_image, momentum = y, image, 1.0
                continue
            following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            factor = (momentum - 1) / following
            ahead, ahead_image = new + factor * (new - y), new_image + factor * (new_image - image)
            self.point = y = new
            image, value, momentum = new_image, new_value, following
        return "time limit"

    def _metric(self) -> Tensor:
        """Return L·diag(M), with L the largest eigenvalue of M in the metric of its diagonal."""
        impact = self.quadratic.self_impact
        diagonal = impact.clamp_min(1e-12 * float(impact.max()))
        root = diagonal.sqrt()
        x, size = root / root.norm(), 1.0
        for _ in range(POWER_STEPS):
            x = self.image(x / root) / root
            size = max(float(x.norm()), 1e-300)
            x = x / size
        return 1.1 * size * diagonal

    def project(self, point: Tensor, metric: Tensor) -> Tensor:
        """Return the nearest relaxed mask in a diagonal metric: clip(point − t/metric) with t such that Σy = n."""
        y = torch.empty_like(point)
        for group, count in zip(self.budget.groups, self.budget.counts, strict=True):
            y[group] = _nearest(point[group], 1 / metric[group], count)
        return y


def _nearest(point: Tensor, stretch: Tensor, count: int) -> Tensor:
    low, high = float(((point - 1) / stretch).min()), float((point / stretch).max())
    for _ in range(60):
        middle = (low + high) / 2
        if float((point - middle * stretch).clamp_(0, 1).sum()) > count:
            low = middle
        else:
            high = middle
    return (point - (low + high) / 2 * stretch).clamp_(0, 1)


def least_eigenvalue(curvature: Curvature) -> float:
    """Return the smallest eigenvalue of H, or a bound on it."""
    damping = curvature.damping if isinstance(curvature, Fisher) else 0.0
    rank = curvature.rows if isinstance(curvature, Fisher) else curvature.size
    if curvature.size > min(DENSE, rank):
        return damping  # with fewer gradients than weights it is exactly that
    every = torch.arange(curvature.size, device=curvature.diagonal().device)
    matrix = curvature.submatrix(every, every)
    least = float(torch.linalg.eigvalsh((matrix + matrix.T) / 2)[0])
    return max(damping, least - 1e-12 * float(matrix.diagonal().max()))


@dataclass
class _System:
    """(H − λI + θI)⁻¹ for a θ of the size of the curvature, where the splitting converges fastest.

    Weights that are zero move nothing: their gradients are left out, so that no other weight leans on them.
    """

    fisher: Fisher
    least: float
    """λ."""
    alive: Tensor

    def __post_init__(self) -> None:
        self.theta = float(self.fisher.diagonal().mean())
        self.columns = self.fisher.columns
        if not bool(self.alive.all()):
            self.columns = self.columns * self.alive.unsqueeze(1)
        damping = self.fisher.damping + self.theta - self.least  # positive: the mean eigenvalue is above the least
        self.factor: Factor = Fisher(self.columns, damping, []).factor(None)

    def solve(self, b: Tensor) -> Tensor:
        """Solve by Woodbury, or directly where there are more gradients than weights."""
        if self.fisher.size < self.fisher.rows:
            return self.factor.solve(b)
        return (b - project(self.columns, self.factor.solve(combine(self.columns, b)))) / self.factor.damping

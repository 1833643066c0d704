"""A good set to start from: swaps from the rounded relaxation and from magnitude."""

from __future__ import annotations

import numpy as np

from brainsurgeon.exact.instance import Array
from brainsurgeon.exact.tangent import FREE, Relaxation, bounds

FRONT = 12
"""Weights on either side whose swaps are all tried at once."""


def swap_descent(relaxation: Relaxation, pruned: Array, most: int = 200) -> tuple[Array, float]:
    """Take the best swap among the weights dearest to prune and the cheapest to keep, until none improves."""
    y = pruned.astype(float)
    values, gradients = relaxation.tangent(y[None])
    cost, gradient = float(values[0]), gradients[0]
    for _ in range(most):
        inside, outside = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
        back = inside[np.argsort(-gradient[inside])[:FRONT]]
        gone = outside[np.argsort(gradient[outside])[:FRONT]]
        if not back.size or not gone.size:
            break
        trials = np.repeat(y[None], back.size * gone.size, axis=0)
        rows = np.arange(len(trials))
        trials[rows, np.repeat(back, gone.size)] = 0
        trials[rows, np.tile(gone, back.size)] = 1
        costs, gradients = relaxation.tangent(trials)
        k = int(costs.argmin())
        if not costs[k] < cost - 1e-12 * abs(cost):
            break
        y, cost, gradient = trials[k], float(costs[k]), gradients[k]
    return y.astype(bool), cost


def rounded(relaxation: Relaxation, start: Array) -> Array:
    """Return the best of a start and of the root's roundings, each improved by swaps."""
    state = np.full((1, relaxation.size), FREE, np.int8)
    y, _ = relaxation.relax(state, relaxation.cold()[None])
    starts = [start, bounds(relaxation, state, y).point[0], lowest(-y[0], relaxation.count)]
    found = [swap_descent(relaxation, guess.astype(bool)) for guess in starts]
    return min(found, key=lambda pair: pair[1])[0]


def lowest(scores: Array, count: int) -> Array:
    """Return a mask of the `count` lowest scores."""
    mask = np.zeros(scores.size, dtype=bool)
    mask[np.argsort(scores, kind="stable")[:count]] = True
    return mask

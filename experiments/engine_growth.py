"""How the engine's times grow with N and K: exponents, by fits on a log scale."""

import math
from pathlib import Path
from typing import Any

import torch

from brainsurgeon.engine.curvature import Fisher
from brainsurgeon.engine.quadratic import QuadraticModel
from experiments.engine_speed import best_of


def growth(_: Path | None) -> dict[str, Any]:
    """Return the exponents of a product, of the screening and of the update; no network is needed."""
    sizes = {n: _seconds(n, 500) for n in (100_000, 200_000, 400_000, 800_000)}
    rows = {k: _seconds(200_000, k) for k in (250, 500, 1000, 2000)}
    return {"growth": {"exponent in N": exponents(sizes), "exponent in K": exponents(rows)}}


def _seconds(size: int, rows: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(size, rows, generator=generator)
    quadratic = QuadraticModel(torch.randn(size, generator=generator), [slice(0, size)], [Fisher(columns, 1e-3)])
    pruned = torch.rand(size, generator=generator) < 0.9
    return {
        "product": best_of(lambda: quadratic.product(quadratic.w)),
        "costs of 50 masks": best_of(lambda: quadratic.costs([pruned] * 50)),
        "update": best_of(lambda: quadratic.renewed().compensate(pruned), 2),
    }


def exponents(times: dict[int, dict[str, float]]) -> dict[str, float]:
    """Return the slope of log time over log size for each measure."""
    xs = [math.log(x) for x in times]
    mean_x = sum(xs) / len(xs)
    found = {}
    for key in next(iter(times.values())):
        ys = [math.log(entry[key]) for entry in times.values()]
        mean_y = sum(ys) / len(ys)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
        found[key] = slope / sum((x - mean_x) ** 2 for x in xs)
    return found

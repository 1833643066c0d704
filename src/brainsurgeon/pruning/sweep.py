"""The best network at each of several sparsities, on the way of one run."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import torch
from torch import nn

from brainsurgeon.engine.budget import as_decimal, exact_count
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Callback
from brainsurgeon.events.clock import Clock
from brainsurgeon.files.writing import plain, safe_names
from brainsurgeon.network.loss import LossLike
from brainsurgeon.network.modes import own_mode
from brainsurgeon.network.weights import Rule
from brainsurgeon.pruning.methods import Method, make_method
from brainsurgeon.pruning.path import Keep, Path, shares_of
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.surgery import Surgery

INDEX = "sweep.json"


@dataclass(frozen=True)
class Sweep:
    """Networks of rising sparsity, each with its model, its masks and its record."""

    results: tuple[PruningResult, ...]

    def table(self) -> str:
        """Return one row a network: sparsity, weights left, and the metric on the held-out samples."""
        first = self.results[0].settings["path"]
        samples, dense = first.get("held_out_samples"), first.get("dense")
        lines = [] if samples is None else [f"on {samples:,} held-out samples, dense {first['metric']} {dense:.4g}"]
        lines.append(f"{'sparsity':>8}  {'weights left':>12}  {first.get('metric', 'sample loss'):>11}  drop")
        for result in self.results:
            path = result.settings["path"]
            value = path.get("value", result.loss_after)
            sure = "" if not path.get("interval") else " ({:.2%} to {:.2%})".format(*path["interval"])
            drop = f"{path['drop']:.2%}{sure}" if math.isfinite(path.get("drop", math.inf)) else ""
            shown = "–" if value is None else f"{value:.4g}"
            lines.append(f"{result.sparsity:>8g}  {result.size - result.pruned:>12,}  {shown:>11}  {drop}".rstrip())
        return "\n".join(lines)

    def pareto(self) -> list[PruningResult]:
        """Return the networks that no sparser one equals in the metric."""
        found: list[PruningResult] = []
        for result in reversed(self.results):
            if not found or _worth(result) > _worth(found[-1]):
                found.append(result)
        return found[::-1]

    def save(self, folder: str | FilePath, compressed: bool = False) -> FilePath:
        """Write every network into a folder of its own inside a new or empty one; `brainsurgeon report` reads it."""
        from brainsurgeon.files.folder import new_folder

        folder = new_folder(folder)
        for result in self.results:
            result.save(folder / name_of(result), compressed)
        (folder / INDEX).write_text(json.dumps(plain(self.to_dict()), indent=2, allow_nan=False))
        return folder

    def to_dict(self) -> dict[str, Any]:
        """Return what was found of each network."""
        rows = [
            {"folder": name_of(r), "sparsity": r.sparsity, "pruned": r.pruned, "size": r.size, **r.settings["path"]}
            for r in self.results
        ]
        return {"networks": rows, "table": self.table()}


def name_of(result: PruningResult) -> str:
    """Return the name of a network's folder, which lies inside that of the sweep whatever a method is called."""
    return f"{safe_names([result.method])[0]}@{result.sparsity!r}"


def sweep_legs(
    surgery: Surgery,
    sparsities: Sequence[float],
    method: Method,
    *,
    budget: str | dict[str, float] = "global",
    seed: int = 0,
    metric: Any = None,
    validation: Any = None,
    keep: Keep | None = None,
) -> Iterator[PruningResult]:
    """Yield the network at each sparsity, rising; each leg goes on from the one before."""
    wanted = check_sparsities(sparsities)
    judged = validation is not None or surgery.data is not None
    path = Path(
        surgery,
        method,
        anchor=wanted[-1],
        budget=budget,
        seed=seed,
        metric=metric,
        judged=judged,
        validation=validation,
        keep=keep,
    )
    leg = None
    for sparsity, share in zip(wanted, shares_of(wanted), strict=True):
        leg = path.go(sparsity, leg, share)
        record = leg.result.settings["path"] | path.judgement(leg)
        yield dataclasses.replace(leg.result, settings=leg.result.settings | {"path": record})


@own_mode()
def sweep(
    model: nn.Module,
    data: Any,
    sparsities: Sequence[float],
    method: str | Method | Sequence[Any] = "auto",
    loss: LossLike = "cross_entropy",
    *,
    metric: Any = None,
    validation: Any = None,
    include: Rule = None,
    exclude: Rule = None,
    budget: str | dict[str, float] = "global",
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: bool | None = None,
    callback: Callback | None = None,
    **settings: Any,
) -> Sweep:
    """Keep the network at each of several sparsities on the way of one run, which costs what one run costs.

    A method that trains goes on from sparsity to sparsity, and `max_gradients` and `max_seconds` are of all networks
    together; the other methods prune the dense network anew, from one examination where they have one.

    Args:
        model: any module; it is left as it is.
        data: training samples, as for `prune`.
        sparsities: the shares of the weights to remove, in any order.
        method: as for `prune`; "auto" goes along with the method that trains.
        loss: as for `prune`.
        metric: what the networks are compared by on held-out samples, as for `Goal`.
        validation: samples to compare them on; by default a fifth of the training samples, 2,000 at most, is held out.
        include: as for `prune`, and so are all that follow.
        exclude: what to leave alone.
        budget: how the weights to remove are shared among the layers.
        seed: of all random draws.
        device: where to work.
        progress: show bars.
        callback: called with an `Event` as the work goes on.
        settings: of the method, by name.
    """
    chosen = make_method(method, settings)
    check_sparsities(sparsities)
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
    given: dict[str, Any] = {"budget": budget, "seed": surgery.seed, "metric": metric, "validation": validation}
    with Clock(surgery.device, surgery._callback).running():  # each leg has a clock of its own
        return Sweep(tuple(sweep_legs(surgery, sparsities, chosen, **given)))


def check_sparsities(sparsities: Sequence[float]) -> list[float]:
    """Return sparsities rising and each once, as decimals; refuse what is none."""
    if isinstance(sparsities, str) or not isinstance(sparsities, Sequence) or not sparsities:
        raise BrainsurgeonError(f"a sweep takes several sparsities, such as [0.5, 0.8, 0.9], got {sparsities!r}")
    for sparsity in sparsities:
        exact_count(sparsity, 1)
    return sorted({as_decimal(sparsity) for sparsity in sparsities})


def _worth(result: PruningResult) -> float:
    lost = result.settings["path"].get("drop", result.loss_after)
    return 0.0 if lost is None else -float(lost)

"""What a layer-wise run will take on this device, before it starts: memory, seconds, and what to change."""

from __future__ import annotations

from dataclasses import dataclass

from brainsurgeon.engine.budget import share_out
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.memory import DoesNotFitError, available_bytes, readable
from brainsurgeon.network.names import name_matches
from brainsurgeon.pruning.fitting import check_memory, needs_of
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.layerwise.timing import seconds_of
from brainsurgeon.pruning.methods import Method, make_method
from brainsurgeon.pruning.surgery import Surgery


@dataclass(frozen=True)
class Forecast:
    """Bytes part by part and seconds by step; `problem` says in words what does not fit, and what would."""

    memory: dict[str, int]
    free: int | None
    seconds: dict[str, float]
    problem: str = ""

    def __str__(self) -> str:
        total = f"about {readable(sum(self.memory.values()))} of memory"
        free = "" if self.free is None else f" ({readable(self.free)} are free)"
        spent = f", and about {sum(self.seconds.values()):.3g} s" if self.seconds else ""
        return f"{total}{free}{spent}{'. It does not fit: ' if self.problem else ''}{self.problem}"


def forecast(
    surgery: Surgery,
    sparsity: float | None,
    method: str | Method = "layerwise",
    budget: str | dict[str, float] = "global",
) -> Forecast:
    """Return what `surgery.prune(sparsity, method, budget=budget)` will take; nothing is pruned."""
    chosen = make_method(method, surgery.settings)
    if not isinstance(chosen, Layerwise):
        raise BrainsurgeonError(f"only layer-wise runs can be foreseen in this way, got method {chosen.name!r}")
    if surgery.data is None:
        raise BrainsurgeonError(f"method {chosen.name!r} needs calibration samples: give data")
    shares = share_out(budget, sparsity, surgery.weights.parts, name_matches)
    problem = ""
    try:
        check_memory(
            chosen, surgery.weights, surgery.resident_bytes(chosen), surgery.device, surgery.footprint_of(chosen)
        )
    except DoesNotFitError as error:
        problem = str(error)
    seconds = {} if problem else seconds_of(surgery, chosen, shares)
    return Forecast(needs_of(chosen, surgery), available_bytes(surgery.device), seconds, problem)

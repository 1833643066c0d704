"""What a survey of the layers found: a table, a budget made of it, and a file that a user may edit."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from brainsurgeon.engine.budget import exact_count
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.writing import plain, write_whole
from brainsurgeon.network.metrics import METRICS
from brainsurgeon.pruning.layerwise.allocate import ErrorCurve, allocate

DIGITS = 10**10
"""A sparsity in a file is cut off behind so many parts: ⌈sN⌉ is then the very count that was meant."""
HEADER = """\
# What the loss would feel of each layer alone, and a budget made of it.
# Change the sparsities under `budget` (0 leaves a layer whole), then: brainsurgeon prune … --budget THIS_FILE
"""


@dataclass(frozen=True)
class LayerSensitivity:
    """The change of the loss with one layer alone pruned, at each sparsity: foretold (by what), and measured."""

    name: str
    shape: tuple[int, ...]
    size: int
    kind: str
    predicted: tuple[float, ...]
    measured: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Sensitivity:
    """What the loss would feel of each layer alone at several sparsities; `loss` is that of the dense network."""

    sparsities: tuple[float, ...]
    layers: tuple[LayerSensitivity, ...]
    loss: float
    samples: int
    notes: tuple[str, ...] = ()

    @property
    def correlation(self) -> float | None:
        """Spearman's rank correlation of the changes foretold and measured; None where nothing was measured."""
        pairs = [
            pair
            for layer in self.layers
            if layer.measured is not None
            for pair in zip(layer.predicted, layer.measured, strict=True)
            if all(map(math.isfinite, pair))
        ]
        if len(pairs) < 2:
            return None
        found = METRICS["spearman"].value(torch.tensor(pairs, dtype=torch.float64).unsqueeze(2))
        return None if math.isnan(found) else found

    def table(self) -> str:
        """Return a table: for each layer and sparsity the change of the loss foretold and, below, measured."""
        width = max(len("layer"), *(len(layer.name) for layer in self.layers))
        head = f"{'layer':<{width}}  {'weights':>11}  {'':>9}  " + "  ".join(f"{s:>9g}" for s in self.sparsities)
        lines = [head]
        for layer in self.layers:
            lines.append(f"{layer.name:<{width}}  {layer.size:>11,}  predicted  {_figures(layer.predicted)}")
            if layer.measured is not None:
                lines.append(f"{'':<{width}}  {'':>11}   measured  {_figures(layer.measured)}")
        return "\n".join([*lines, *self.words()])

    def words(self) -> list[str]:
        """Return what there is to say of the whole."""
        said = f"changes of the loss, which is {self.loss:.4g} on {self.samples} samples with all weights"
        agreed = "" if self.correlation is None else f"; rank correlation of both {self.correlation:.2f}"
        return [said + agreed, *(f"note: {note}" for note in self.notes)]

    def budget(self, sparsity: float, by: str = "predicted", most: float = 0.98) -> dict[str, float]:
        """Return a sparsity for each layer, ⌈rN⌉ weights in all, so that each layer's next weight costs the same.

        `by` says which changes count, "predicted" or "measured"; no layer loses more than a share `most`, unless the
        sparsity asks for it. `brainsurgeon.prune(…, budget=…)` takes it.
        """
        if by not in ("predicted", "measured"):
            raise BrainsurgeonError(f'by must be "predicted" or "measured", got {by!r}')
        if by == "measured" and any(layer.measured is None for layer in self.layers):
            raise BrainsurgeonError('nothing was measured: call sensitivity(…, measure=True), or take by="predicted"')
        curves = [
            ErrorCurve(layer.name, layer.size, self.sparsities, _rising(getattr(layer, by))) for layer in self.layers
        ]
        counts = allocate(curves, exact_count(sparsity, sum(layer.size for layer in self.layers)), most)
        return {la.name: count * DIGITS // la.size / DIGITS for la, count in zip(self.layers, counts, strict=True)}

    def to_dict(self, sparsity: float = 0.9, by: str = "predicted") -> dict[str, Any]:
        """Return a budget for a sparsity, and all that it was made of."""
        found = plain(asdict(self)) | {"correlation": self.correlation}
        return {"sparsity": sparsity, "budget": self.budget(sparsity, by), "sensitivity": found}

    def save(self, file: str | Path, sparsity: float = 0.9, by: str = "predicted") -> Path:
        """Write a budget for a sparsity, to be edited, with all that it was made of: YAML, or JSON by the name."""
        path, values = Path(file), self.to_dict(sparsity, by)
        if path.suffix == ".json":
            text = json.dumps(values, indent=2, allow_nan=False)
        elif path.suffix in (".yaml", ".yml"):
            import yaml

            text = HEADER + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10**6)
        else:
            raise BrainsurgeonError(f"a sensitivity is saved as .yaml, .yml or .json, got {path.name!r}")
        write_whole(path, text)
        return path


def _rising(changes: tuple[float, ...]) -> tuple[float, ...]:
    """Return changes that are positive and do not fall: a measured one may be noise; infinite ones are very large."""
    found, last = [], 1e-12
    for change in changes:
        last = max(last, min(change, 1e30) if not math.isnan(change) else 1e30)
        found.append(last)
    return tuple(found)


def _figures(changes: tuple[float, ...]) -> str:
    return "  ".join(f"{change:>+9.2g}" for change in changes)

"""What a run gives back: the pruned model and everything worth knowing of how it came about."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .events import Event


@dataclass(frozen=True)
class LayerRecord:
    """The count of one layer."""

    name: str
    shape: tuple[int, ...]
    pruned: int
    size: int

    @property
    def sparsity(self) -> float:
        """The share of this layer's weights that is gone."""
        return self.pruned / self.size


@dataclass(frozen=True)
class PruningResult:
    """The pruned model, its masks (True where a weight is removed) and the record of the run."""

    model: nn.Module
    masks: dict[str, Tensor]
    layers: tuple[LayerRecord, ...]
    sparsity: float
    method: str
    predicted_change: float | None
    loss_before: float
    loss_after: float
    seconds: dict[str, float]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()
    trace: tuple[Event, ...] = field(default=(), repr=False)

    @property
    def pruned(self) -> int:
        """The number of weights removed, exactly ⌈rN⌉."""
        return sum(layer.pruned for layer in self.layers)

    @property
    def size(self) -> int:
        """N, the number of weights that could have been removed."""
        return sum(layer.size for layer in self.layers)

    @property
    def achieved(self) -> float:
        """The share of the weights that is gone."""
        return self.pruned / self.size

    def summary(self) -> str:
        """Return the outcome in words and a table of the layers."""
        width = max(len("layer"), *(len(layer.name) for layer in self.layers))
        predicted = "" if self.predicted_change is None else f" (predicted change {self.predicted_change:+.4g})"
        lines = [
            f"{self.method}: {self.pruned:,} of {self.size:,} weights pruned ({self.achieved:.4%})",
            f"sample loss {self.loss_before:.4g} before, {self.loss_after:.4g} after{predicted}",
            f"{sum(self.seconds.values()):.1f} s: " + ", ".join(f"{k} {v:.1f}" for k, v in self.seconds.items()),
            "",
            f"{'layer':<{width}}  {'pruned':>10}  {'of':>10}  sparsity",
        ]
        lines += [f"{la.name:<{width}}  {la.pruned:>10,}  {la.size:>10,}  {la.sparsity:8.2%}" for la in self.layers]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the tensors."""
        return {
            "method": self.method,
            "sparsity": self.sparsity,
            "pruned": self.pruned,
            "size": self.size,
            "predicted_change": self.predicted_change,
            "loss_before": self.loss_before,
            "loss_after": self.loss_after,
            "seconds": self.seconds,
            "settings": self.settings,
            "notes": list(self.notes),
            "layers": [asdict(layer) for layer in self.layers],
            "trace": [{"stage": e.stage, "done": e.done, **e.values} for e in self.trace],
        }

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(_plain(self.to_dict()), indent=2, allow_nan=False)

    def save(self, folder: str | Path) -> Path:
        """Write model.safetensors, masks.safetensors and result.json into a new or empty folder."""
        from .checkpoint import save_checkpoint, save_tensors  # safetensors is needed here alone

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty: give a new folder, so that no other run is overwritten")
        save_checkpoint(self.model, folder / "model.safetensors")
        save_tensors(self.masks, folder / "masks.safetensors")
        (folder / "result.json").write_text(self.to_json())
        return folder


def _plain(value: Any) -> Any:
    """Replace numbers that JSON has no word for (a diverged loss) by null."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""One method at one sparsity: finished when its folder is there, which appears whole or not at all."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.app.runs.folder import HUGGINGFACE, cell_name, is_finished
from brainsurgeon.app.runs.portrait import histograms
from brainsurgeon.app.scores import measure
from brainsurgeon.app.target import Target
from brainsurgeon.export.huggingface import add_masks
from brainsurgeon.files.sealed import parse_object
from brainsurgeon.files.writing import plain, write_whole
from brainsurgeon.network.weights import PrunableWeights
from brainsurgeon.pruning.result import PruningResult


@dataclass(frozen=True)
class Cell:
    """One method at one sparsity."""

    method: str
    sparsity: float
    folder: Path

    @property
    def name(self) -> str:
        """Its name in a table, a log or a folder."""
        return cell_name(self.method, self.sparsity)

    @property
    def finished(self) -> bool:
        """Whether its outcome is there."""
        return is_finished(self.folder)

    def result(self) -> dict[str, Any]:
        """Return the record of the result."""
        return self._read("result.json")

    def measured(self) -> dict[str, Any]:
        """Return scores and histograms."""
        return self._read("measured.json")

    def _read(self, name: str) -> dict[str, Any]:
        return parse_object((self.folder / name).read_bytes(), self.folder / name)

    def save(self, result: PruningResult, target: Target, weights: PrunableWeights, dense: Tensor) -> dict[str, float]:
        """Write a result with what was measured of it, and return its scores."""
        temporary = self.folder.with_name(f".{self.folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        result.save(temporary)
        scores = measure(target, result.model)
        after = weights.flatten(result.model).cpu()
        pruned = torch.cat([mask.reshape(-1).cpu() for mask in result.masks.values()])
        shown = histograms(weights, dense.cpu(), after, pruned)
        (temporary / "measured.json").write_text(json.dumps({"scores": scores, "histograms": shown}))
        self._appear(temporary)
        return scores

    def save_on_disk(self, result: PruningResult, target: Target, copy: Path) -> dict[str, float]:
        """Move the folder of a model that was pruned on disk here, with all else that is known of it."""
        temporary = self.folder.with_name(f".{self.folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        scores = measure(target, result.model)
        record = plain(result.to_dict())
        add_masks(result.model, copy, result.masks, result.pruned, {**record, "scores": scores})
        write_whole(temporary / "result.json", json.dumps(record, indent=2, allow_nan=False))
        write_whole(temporary / "measured.json", json.dumps({"scores": scores}))
        copy.replace(temporary / HUGGINGFACE)
        self._appear(temporary)
        return scores

    def _appear(self, temporary: Path) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)  # what is left of an outcome that lost its model
        temporary.replace(self.folder)

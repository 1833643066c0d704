"""What is tried within a limit of time: nothing that would not be finished, or not fit."""

from __future__ import annotations

from typing import Any

import pytest
from staging import trained
from torch import Tensor, nn

from brainsurgeon import PruningResult, Surgery
from brainsurgeon.pruning.auto import candidates as module
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.one_shot import OneShot


@pytest.fixture(scope="module")
def toy() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return trained()


def quick(toy: Any) -> PruningResult:
    return Surgery(*toy, progress=False).prune(0.8, "auto", effort="quick", max_seconds=60.0)


def test_gradients_of_a_candidate_are_bounded_by_memory_too(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, run = list[int](), OneShot.run

    def watched(self: OneShot, surgery: Any, task: Any) -> Any:
        if self.name != "mp":
            rows.append(self.num_gradients)
        return run(self, surgery, task)

    monkeypatch.setattr(OneShot, "run", watched)
    size = Surgery(*toy, progress=False).weights.size
    monkeypatch.setattr(module, "MOST_ENTRIES", 50 * size)
    assert {"mp+cbs-u", "cbs"} <= set(quick(toy).settings["candidates"])
    assert rows == [50, 50]
    monkeypatch.setattr(module, "MOST_ENTRIES", 10 * size)
    assert not {"mp+cbs-u", "cbs"} & set(quick(toy).settings["candidates"])


@pytest.mark.parametrize(("seconds", "fits"), [(1.0, False), (1e-6, True)])
def test_layers_are_solved_on_enough_samples_or_not_at_all(
    toy: Any, monkeypatch: pytest.MonkeyPatch, seconds: float, fits: bool
) -> None:
    """With a second for each sample a few would fit; moments of a few samples are worth nothing."""
    monkeypatch.setattr(module, "seconds_a_sample", lambda *_: seconds)
    monkeypatch.setattr(module, "SEARCH_PASSES", 0)
    result = quick(toy)
    assert ("layerwise" in result.settings["candidates"]) == fits
    assert any("no time for layerwise" in note for note in result.notes) != fits
    assert Layerwise().max_samples > module.LEAST_ROWS

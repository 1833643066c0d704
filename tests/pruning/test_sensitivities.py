"""What a survey found: its table, its budget and its file."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from surveys import SOME

import brainsurgeon
from brainsurgeon import Sensitivity
from brainsurgeon.engine.budget import exact_count
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.paper.datasets.embedded import load_demo
from brainsurgeon.pruning.sensitivities import LayerSensitivity


def test_the_budget_meets_the_sparsity_exactly_and_prune_takes_it(demo: Sensitivity) -> None:
    model, data = load_demo()
    budget = demo.budget(0.9)
    size = sum(layer.size for layer in demo.layers)
    result = brainsurgeon.prune(model, data.train(), 0.9, "mp", budget=budget)
    assert result.pruned == exact_count(0.9, size)
    assert [layer.sparsity for layer in result.layers] == pytest.approx(list(budget.values()), abs=1e-3)
    uniform = brainsurgeon.prune(model, data.train(), 0.9, "mp", budget="uniform")
    assert result.loss_after is not None
    assert uniform.loss_after is not None
    assert result.loss_after < uniform.loss_after


def test_the_budget_spares_the_layer_that_the_loss_feels_most() -> None:
    layers = (
        LayerSensitivity("a", (10, 10), 100, "moments", (1.0, 2.0, 4.0), (-0.1, 0.2, float("inf"))),
        LayerSensitivity("b", (10, 10), 100, "moments", (0.01, 0.02, 0.04), (3.0, 4.0, 5.0)),
    )
    found = Sensitivity(SOME, layers, 0.5, 100)
    assert found.budget(0.5)["a"] < 0.2 < 0.8 < found.budget(0.5)["b"]
    by_measure = found.budget(0.5, by="measured")
    assert by_measure["a"] > by_measure["b"]
    assert sum(found.budget(0.5).values()) == pytest.approx(1.0)
    foretold = Sensitivity(SOME, (LayerSensitivity("a", (2,), 2, "moments", (1.0, 2.0, 4.0)),), 0.5, 100)
    assert foretold.correlation is None
    with pytest.raises(BrainsurgeonError, match="nothing was measured"):
        foretold.budget(0.5, by="measured")
    with pytest.raises(BrainsurgeonError, match='by must be "predicted" or "measured"'):
        found.budget(0.5, by="size")


def test_it_is_saved_as_a_file_to_edit(demo: Sensitivity, tmp_path: Path) -> None:
    written = yaml.safe_load(demo.save(tmp_path / "budget.yaml", 0.8).read_text())
    same = json.loads(demo.save(tmp_path / "budget.json", 0.8).read_text())
    assert written == same
    assert written["budget"] == demo.budget(0.8)
    assert written["sensitivity"]["layers"][0]["predicted"] == list(demo.layers[0].predicted)
    assert (tmp_path / "budget.yaml").read_text().startswith("# What the loss would feel")
    with pytest.raises(BrainsurgeonError, match=r"saved as .yaml, .yml or .json, got 'budget.txt'"):
        demo.save(tmp_path / "budget.txt")


def test_the_table_says_both_and_how_they_agree(demo: Sensitivity) -> None:
    table = demo.table()
    assert table.count("predicted") == table.count("measured") == len(demo.layers)
    assert f"rank correlation of both {demo.correlation:.2f}" in table
    assert "0.95" not in table.splitlines()[0]


@settings(max_examples=15)
@given(st.floats(0.01, 0.98), st.lists(st.integers(1, 500), min_size=1, max_size=5), st.integers(0, 99))
def test_the_counts_of_a_budget_are_those_of_the_whole_however_sparsities_round(
    sparsity: float, sizes: list[int], seed: int
) -> None:
    """⌈sN⌉ of the layers' sparsities adds up to ⌈rN⌉ of all, to the weight."""
    draw = torch.rand(len(sizes), 3, generator=torch.Generator().manual_seed(seed)).cumsum(1)
    layers = tuple(
        LayerSensitivity(str(number), (size,), size, "moments", tuple(changes))
        for number, (size, changes) in enumerate(zip(sizes, draw.tolist(), strict=True))
    )
    budget = Sensitivity(SOME, layers, 0.5, 100).budget(sparsity)
    counts = [math.ceil(Fraction(str(budget[layer.name])) * layer.size) for layer in layers]
    assert sum(counts) == exact_count(sparsity, sum(sizes))

"""Layers one after the other: their errors at a few sparsities, told as they are found."""

from typing import Any

import pytest
import torch
from layer_cases import dense_fit, row_error
from networks import BY_NAME, maps_of, stream_of

from brainsurgeon.engine.budget import Share
from brainsurgeon.engine.layer.patterns import Pattern, parse_pattern
from brainsurgeon.events import Event, silent
from brainsurgeon.events.clock import Clock
from brainsurgeon.pruning.layerwise.run import HIGH, TRIED, LayerRun, tried_for
from brainsurgeon.pruning.layerwise.solvers import Admm, Scored

KINDS = ["residual", "convolutional", "gpt2", "encoder"]


def run_of(pattern: str = "unstructured", **settings: Any) -> LayerRun:
    settings = {"solver": Scored("wanda"), "costs": {}, "notify": silent, **settings}
    return LayerRun(pattern=parse_pattern(pattern), damping=0.01, clock=Clock(), **settings)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighed", [False, True])
def test_curves_are_the_errors_of_a_mask_by_scores_and_least_squares(kind: str, weighed: bool) -> None:
    """Against dense solutions for every row, group by group of a convolution; the network stays as it was."""
    network = BY_NAME[kind]
    model = network.model()
    before = [parameter.clone() for parameter in model.parameters()]
    drawn = torch.Generator().manual_seed(0)
    sizes = {layer.name: layer.rows(layer.weight).shape[:-1].numel() for layer in maps_of(model)}
    costs = {n: torch.rand(rows, generator=drawn, dtype=torch.float64) + 0.1 for n, rows in sizes.items()}
    run = run_of(costs=costs if weighed else {})
    curves = {curve.name: curve for curve in run.curves(stream_of(network, model))}
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    for part in stream_of(network, model).parts():
        for group in part.groups:
            for name, moments in part.moments(group).items():
                layer = next(layer for layer in group if layer.name == name)
                matrix = moments.matrix.clone()
                level = matrix.diagonal(dim1=1, dim2=2).mean()
                matrix += moments.damped(0.01) * level * torch.eye(matrix.shape[-1])
                rows = layer.rows(layer.weight.detach()).double()
                scales = torch.ones(rows.shape[:-1], dtype=torch.float64)
                if weighed:
                    scales = (costs[name] / 2 + costs[name].mean() / 2).view(scales.shape)
                scores = rows.square() * matrix.diagonal(dim1=1, dim2=2).unsqueeze(1) * scales.unsqueeze(2)
                for sparsity, error in zip(TRIED, curves[name].errors, strict=True):
                    count = Pattern().count(sparsity, rows.shape)
                    pruned = torch.zeros(rows.numel(), dtype=torch.bool)
                    pruned[scores.reshape(-1).argsort()[:count]] = True
                    pruned = pruned.view(rows.shape)
                    best = sum(
                        float((row_error(dense_fit(w, a, p), w, a) * s).sum())
                        for w, a, p, s in zip(rows, matrix, pruned, scales, strict=True)
                    )
                    assert error == pytest.approx(best, rel=0.05, abs=1e-9)
    assert {curve.size for curve in curves.values()} <= {layer.weight.numel() for layer in maps_of(model)}


def test_the_errors_of_the_layers_are_kept_and_told_as_they_are_found() -> None:
    network, events = BY_NAME["residual"], list[Event]()
    model = network.model()
    run = run_of(solver=Admm(steps=4), notify=events.append)
    counts = {layer.name: layer.weight.numel() // 2 for layer in maps_of(model)}
    masks = run.prune(stream_of(network, model), counts, lambda number: None, lambda number, tensors: None)
    assert {name: int(mask.sum()) for name, mask in masks.items()} == counts
    assert run.errors.keys() == counts.keys()
    assert [event.done for event in events] == list(range(1, len(counts) + 1))
    assert all(event.total == len(counts) for event in events)
    assert [event.values["error"] for event in events] == [run.errors[name] for name in masks]
    assert next(iter(masks)) == "stem.weight"  # in the order of the calls
    assert list(masks)[-1] == "head.weight"


def test_a_part_that_is_stored_says_all_that_is_needed_of_it() -> None:
    network, stored = BY_NAME["residual"], dict[int, dict[str, torch.Tensor]]()
    model = network.model()
    counts = {layer.name: layer.weight.numel() // 2 for layer in maps_of(model)}
    masks = run_of().prune(stream_of(network, model), counts, stored.get, stored.__setitem__)
    fresh, again = network.model(), run_of()
    calls: list[int] = []
    found = again.prune(stream_of(network, fresh), counts, stored.get, lambda number, _: calls.append(number))
    assert calls == []
    assert found.keys() == masks.keys()
    for name, mask in masks.items():
        assert torch.equal(found[name], mask)
        assert torch.equal(fresh.get_parameter(name), model.get_parameter(name))
    assert len(again.errors) == len(counts)


def test_errors_are_found_as_high_as_any_budget_asks_for() -> None:
    low, high = Share((("a", 0, 100),), 85), Share((("b", 100, 50), ("c", 150, 50)), 86)
    assert tried_for([low, Share((("d", 200, 9),), 0)]) == TRIED
    assert tried_for([low, high]) == (*TRIED, HIGH)
    assert tried_for([]) == TRIED


def test_where_ranks_agree_that_time_is_up_the_layers_before_are_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rank is asked before every group, and only with a limit."""
    network = BY_NAME["residual"]
    model, asked = network.model(), list[float]()
    counts = {layer.name: 3 for layer in maps_of(model)}
    monkeypatch.setattr("brainsurgeon.pruning.ranks.agreed", lambda late: asked.append(late) or len(asked) == 2)
    run = run_of()
    run.clock = Clock(limit=-1.0)  # this rank's own time is up from the start
    with run.clock.sharing(True), run.clock.running():
        masks = run.prune(stream_of(network, model), counts, lambda number: None, lambda number, tensors: None)
    assert run.late
    assert asked == [True, True]
    assert 1 <= len(masks) < len(counts)

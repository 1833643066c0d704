"""Every kind of method under a pattern: masks that have it, counts that are exact, and layers that are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon.engine.layer.patterns import parse_pattern
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events.clock import TimeUp
from brainsurgeon.pruning.auto.candidates import Candidate
from brainsurgeon.pruning.auto.found import Found
from brainsurgeon.pruning.auto.run import AutoRun
from brainsurgeon.pruning.result import PruningResult

PATTERNS = ["2:4", "1x4", "2x2", "row"]
SHORT: dict[str, dict[str, Any]] = {
    "mp": {},
    "wf-s": {"num_gradients": 20},
    "cbs-s": {"num_gradients": 20},
    "cbs": {"num_gradients": 20},
    "gradual": {"max_gradients": 640, "learning_rate": 1e-3, "batch_size": 16},
    "staged": {"max_gradients": 400, "schedule": 2},
    "auto": {"max_gradients": 640},
}


def network() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
        data = torch.randn(60, 2, 3, 3), torch.randint(4, (60,))
    return model, data


@pytest.mark.parametrize("method", SHORT)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_masks_have_the_pattern_and_the_exact_count(method: str, pattern: str) -> None:
    model, data = network()
    result = brainsurgeon.prune(model, data, 0.5, method, pattern=pattern, progress=False, **SHORT[method])
    assert result.pruned == 96
    assert str(parse_pattern(pattern)) == pattern
    for name, mask in result.masks.items():
        rows = mask.flatten(1)
        assert parse_pattern(pattern).feasible(rows, int(rows.sum())), name
        assert not result.model.get_parameter(name)[mask].any()
    assert result.settings["method"]["pattern"]["type"] == "Pattern"


@pytest.mark.parametrize("settings", [{"effort": "quick"}, {"max_gradients": 6400}, {"max_seconds": 3.0}])
def test_every_candidate_of_auto_keeps_to_the_pattern(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[str]()
    judge = AutoRun._tried

    def tried(run: AutoRun, candidate: Candidate, store: object) -> Found:
        found = judge(run, candidate, store)
        seen.append(candidate.name)
        for name, mask in found.masks.items():
            rows = mask.flatten(1)
            assert parse_pattern("2:4").feasible(rows, int(rows.sum())), (candidate.name, name)
        return found

    monkeypatch.setattr(AutoRun, "_tried", tried)
    model, data = network()
    result = brainsurgeon.prune(model, data, 0.5, "auto", pattern="2:4", progress=False, **settings)
    assert len(seen) >= 2
    assert str(result.pattern) == "2:4"


def test_a_run_whose_time_is_up_at_once_has_the_pattern_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any) -> None:
        raise TimeUp

    monkeypatch.setattr("brainsurgeon.pruning.gradual.method.GradualRun", late)
    model, data = network()
    result = brainsurgeon.prune(model, data, 0.5, "gradual", pattern="2:4", max_seconds=5.0, progress=False)
    assert any("time was up" in note for note in result.notes)
    for mask in result.masks.values():
        rows = mask.flatten(1)
        assert parse_pattern("2:4").feasible(rows, int(rows.sum()))


def test_auto_refuses_a_layer_that_cannot_have_the_pattern_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brainsurgeon.pruning.auto.method.AutoRun", None)
    model, data = network()
    with pytest.raises(BrainsurgeonError, match=r"layer '0.weight': the pattern 1x3 needs"):
        brainsurgeon.prune(model, data, 0.5, "auto", pattern="1x3", progress=False)


def test_magnitude_in_a_pattern_is_the_lowest_of_every_cell() -> None:
    model, data = network()
    result = brainsurgeon.prune(model, data, 0.5, "mp", pattern="2:4", progress=False)
    for name, mask in result.masks.items():
        cells = model.get_parameter(name).detach().abs().view(-1, 4)
        kept = cells.masked_fill(mask.view(-1, 4), -1).topk(2, 1).values
        assert torch.equal(kept, cells.topk(2, 1).values)


def test_a_layer_that_the_pattern_does_not_divide_is_refused_by_name() -> None:
    model, data = network()
    with pytest.raises(BrainsurgeonError, match=r"layer '0.weight': the pattern 1x3 needs"):
        brainsurgeon.prune(model, data, 0.5, "mp", pattern="1x3", progress=False)
    embedded = nn.Sequential(nn.Embedding(8, 8), nn.Flatten(), nn.Linear(16, 4))
    with pytest.raises(BrainsurgeonError, match=r"'0.weight' is of neither"):
        brainsurgeon.prune(embedded, None, 0.5, "mp", pattern="2:4", progress=False)


def test_another_sparsity_than_that_of_the_pattern_is_refused() -> None:
    model, data = network()
    with pytest.raises(BrainsurgeonError, match=r"2:4 means a sparsity of 0.5"):
        brainsurgeon.prune(model, data, 0.7, "mp", pattern="2:4", progress=False)


def test_training_on_keeps_the_pattern() -> None:
    model, data = network()
    result = brainsurgeon.prune(model, data, 0.5, "cbs", pattern="2:4", num_gradients=20, progress=False)
    before = result.model[3].weight.detach().clone()
    optimizer = torch.optim.SGD(result.model.parameters(), lr=0.1)
    brainsurgeon.freeze_zeros(result.model, optimizer, result.masks)
    torch.nn.functional.cross_entropy(result.model(data[0]), data[1]).backward()
    optimizer.step()
    assert not torch.equal(result.model[3].weight, before)
    for name in result.masks:
        zeros = result.model.get_parameter(name) == 0
        assert (zeros.flatten(1).view(-1, 4).sum(1) == 2).all(), name


def test_a_saved_result_says_its_pattern_and_is_checked_for_it(tmp_path: Path) -> None:
    model, data = network()
    result = brainsurgeon.prune(model, data, 0.5, "mp", pattern="2:4", progress=False)
    assert ", pattern 2:4" in result.summary()
    again = PruningResult.load(result.save(tmp_path / "fine"), network()[0])
    assert again.pattern == parse_pattern("2:4")
    other = brainsurgeon.prune(model, data, 0.5, "mp", pattern="1x4", progress=False)
    other.settings["method"]["pattern"] = result.settings["method"]["pattern"]
    folder = other.save(tmp_path / "wrong")
    with pytest.raises(BrainsurgeonError, match="not of the pattern 2:4"):
        PruningResult.load(folder, network()[0])

"""The experiment on the joint search: its lines are right, and none is computed twice; the figure is of the record."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from brainsurgeon.data.embedded import load_demo

ROOT = Path(__file__).parent.parent
METHODS = ("wf-s+cbs-u", "cbs-s+cbs-u", "cbs", "joint+cbs-u", "joint-from-cbs-s+cbs-u")


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def experiment() -> ModuleType:
    return script("experiments/joint.py")


@pytest.fixture(scope="module")
def lines(experiment: ModuleType) -> dict[str, dict[str, Any]]:
    bench = experiment.Bench(*load_demo(), {"num_gradients": 100, "loss_samples": 512, "damping": 1e-3})
    return {method: bench.line(0.95, method) for method in METHODS}


def test_the_best_update_lowers_the_cost_of_every_mask(lines: dict[str, dict[str, Any]]) -> None:
    assert all(line["joint_cost"] < line["selection_cost"] for line in lines.values())
    assert all(line["pruned"] == 30742 and line["size"] == 32360 for line in lines.values())


def test_the_joint_search_ends_below_where_it_began(lines: dict[str, dict[str, Any]]) -> None:
    cost = {method: line["joint_cost"] for method, line in lines.items()}
    assert cost["joint+cbs-u"] < cost["wf-s+cbs-u"]
    assert cost["joint-from-cbs-s+cbs-u"] < cost["cbs-s+cbs-u"]


def test_the_whole_update_is_another_where_less_of_it_was_taken(lines: dict[str, dict[str, Any]]) -> None:
    for method, line in lines.items():
        parts = {part: line[part] for part in ("sample_loss", "accuracy")}
        if method != "cbs":  # a rival may win with another scale
            assert (line["whole"] == parts) == (line["scale"] == [1.0])


def test_a_finished_line_is_not_computed_again(
    experiment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = load_demo()
    output = tmp_path / "joint.jsonl"
    monkeypatch.setattr(experiment, "load_network", lambda *_: model)
    monkeypatch.setattr(experiment, "load_images", lambda *_: data)
    command = "joint mlpnet --checkpoints none --gradients 50 --seeds 0 --sparsities 0.9"
    monkeypatch.setattr("sys.argv", [*command.split(), "--output", str(output), "--methods", "mp+cbs-u"])
    experiment.main()
    once = output.read_text()
    monkeypatch.setattr(experiment, "Bench", None)  # examined again, it would fail
    experiment.main()
    assert output.read_text() == once
    assert json.loads(once)["method"] == "mp+cbs-u"


def test_tables_show_means_over_seeds_and_the_best_in_bold() -> None:
    tables = script("experiments/joint_tables.py")
    key = {"network": "mlpnet", "num_gradients": 1000, "sparsity": 0.9, "versions": {"device": "an abacus"}}

    def line(method: str, accuracy: float, whole: float, cost: float) -> dict[str, Any]:
        own = {"accuracy": accuracy, "whole": {"accuracy": whole}, "sample_loss": cost, "seconds": 10 * cost}
        return {**key, "method": method, "selection_cost": 2 * cost, "joint_cost": cost, **own}

    some = [line("cbs", 90, 80, 0.2), line("cbs", 92, 82, 0.4), line("joint+cbs-u", 90.5, 90.5, 0.1)]
    start = "| MLPNet | 1,000 | 0.9 | – | – | – |"
    assert tables.accuracy(some).splitlines()[-1] == f"{start} **91.00 (81.00)** | 90.50 | – |"
    assert tables.costs(some).splitlines()[-1] == f"{start} 600 → 300 | **200 → 100** | – |"
    assert tables.sample_loss(some).splitlines()[-1] == f"{start} 0.300 | **0.100** | – |"
    assert tables.seconds(some).splitlines()[-1].endswith("an abacus | – | – | – | 3.0 – 3.0 | 1.0 – 1.0 | – |")


def test_the_picture_of_the_searches_is_that_of_the_record() -> None:
    figure = script("benchmarks/searches_figure.py")
    record = json.loads(figure.RESULTS.read_text())
    assert figure.FIGURE.read_text() == figure.draw(record).svg(standalone=True)
    drawn = {(row["network"], row["search"]) for network in record.values() for row in network["rows"]}
    for network in ("mlpnet", "resnet20"):
        assert {
            (network, name) for name in ("algorithm 1", "wide", "multi-start", "tabu", "relinking", "recentred")
        } <= drawn

"""One callback, many listeners: log lines, bars, TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

import io
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from brainsurgeon.app import trackers
from brainsurgeon.app.trackers import combined, line, log_lines, track
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.events.progress import bars

EVENTS = [
    Event("gradients", 10, 20),
    Event("gradients", 20, 20),
    Event("search", 1, 2, {"cost": 0.5, "swaps": 3}, "cbs@0.9"),
    Event("search", 2, 2, {"cost": 0.25, "swaps": 1}, "cbs@0.9"),
    Event("search", 1, 2, {"cost": 0.125, "swaps": 1}, "cbs@0.9"),
    Event("stages", 1, 2, {"curvature": "gram"}),  # type: ignore[dict-item]
]


def test_a_line_says_stage_share_values_and_time_left() -> None:
    assert line(EVENTS[0], 5.0, 10) == "gradients: 10 of 20 (2/s, 5 s left)"
    assert line(EVENTS[2]) == "cbs@0.9 search: 1 of 2: cost 0.5, swaps 3"
    assert line(Event("download", 3)) == "download: 3"
    words = {"pruned": 12000, "curvature": "gram"}
    assert line(Event("stages", 1, 30, words)) == "stages: 1 of 30: pruned 12,000, curvature gram"  # type: ignore[arg-type]


def test_lines_come_at_the_beginning_at_the_end_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(trackers, "time", SimpleNamespace(monotonic=lambda: now))
    written: list[str] = []
    tell = log_lines(written.append, every=10.0)
    for step in range(1, 101):
        now += 1.0
        tell(Event("draws", step, 100))
    assert len(written) == 11
    assert written[0].startswith("draws: 1 of 100")
    assert written[-1] == "draws: 100 of 100"
    assert "left" in written[5]
    for step in range(1, 101):  # the same again, quickly: not worth as many lines
        now += 0.01
        tell(Event("draws", step, 100))
    assert len(written) == 11


def test_a_resumed_stage_is_timed_from_where_it_was_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(trackers, "time", SimpleNamespace(monotonic=lambda: now))
    written: list[str] = []
    tell = log_lines(written.append, every=1.0)
    for step in (20, 21, 22):
        tell(Event("stages", step, 30))
        now += 10.0
    assert written[-1] == "stages: 22 of 30 (0.1/s, 80 s left)"


def test_one_callback_reaches_all() -> None:
    first: list[Event] = []
    second: list[Event] = []
    combined(first.append, second.append)(EVENTS[0])
    assert first == second == [EVENTS[0]]


def test_bars_show_rate_and_time_left() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    with bars(console) as draw:
        for event in EVENTS[:1] + EVENTS[2:3]:
            draw(event)
            time.sleep(0.25)  # bars are drawn ten times a second
    shown = file.getvalue()
    assert "gradients" in shown
    assert "10/20" in shown
    assert "cbs@0.9 search" in shown


def test_weights_and_biases_gets_settings_and_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[Any] = []
    run = SimpleNamespace(log=logged.append, finish=lambda: logged.append("finished"))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **kw: logged.append(kw) or run))
    with track(["wandb"], tmp_path, {"sparsity": 0.9}) as callbacks:
        for event in EVENTS:
            callbacks[0](event)
    assert logged[0]["config"] == {"sparsity": 0.9}
    assert {"cbs@0.9/search/cost": 0.25} in logged
    assert logged[-1] == "finished"


def test_mlflow_gets_numbered_metrics_under_names_it_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[Any] = []

    @contextmanager
    def start_run(run_name: str):
        yield

    fake = SimpleNamespace(
        start_run=start_run, log_params=logged.append, log_metric=lambda k, v, step: logged.append((k, v, step))
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    with track(["mlflow"], tmp_path, {"sparsity": 0.9}) as callbacks:
        for event in EVENTS:
            callbacks[0](event)
    assert logged[0] == {"sparsity": "0.9"}
    assert [entry for entry in logged[1:] if entry[0] == "cbs at 0.9/search/cost"] == [
        ("cbs at 0.9/search/cost", 0.5, 1),
        ("cbs at 0.9/search/cost", 0.25, 2),
        ("cbs at 0.9/search/cost", 0.125, 3),
    ]


def test_tensorboard_writes_into_the_folder_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with track(["tensorboard"], tmp_path, {"sparsity": 0.9}) as callbacks:
        for event in EVENTS:
            callbacks[0](event)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert [scalar.value for scalar in read.Scalars("cbs@0.9/search/cost")] == [0.5, 0.25, 0.125]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BrainsurgeonError, match=rf"pip install 'brainsurgeon\[{name}\]'"), track([name], tmp_path, {}):
        pass


def test_an_unknown_tracker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrainsurgeonError, match="the trackers are"), track(["paper"], tmp_path, {}):
        pass


def test_a_tracker_that_cannot_start_is_the_users_to_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("not logged in")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=refuse))
    with pytest.raises(BrainsurgeonError, match="opened: not logged in"), track(["wandb"], tmp_path, {}):
        pass


def test_a_tracker_that_fails_on_the_way_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def lose(_: object) -> None:
        calls.append(1)
        raise ConnectionError("connection lost")

    run = SimpleNamespace(log=lose, finish=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: run))
    with track(["wandb"], tmp_path, {}) as callbacks:
        for event in EVENTS:
            callbacks[0](event)
    assert len(calls) == 1
    assert "wandb failed and gets no more events: connection lost" in caplog.text

"""What the tables of a record say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brainsurgeon.app.report import Record, read_record
from brainsurgeon.app.report.tables import comparison, costs, everything, figure, layers

Make = Callable[..., Path]


@pytest.fixture
def record(make_run: Make, tmp_path: Path) -> Record:
    return read_record([make_run(tmp_path / "run", ["a", "b"], ["mp", "cbs"], [0.5, 0.9])])


def test_the_best_of_a_row_stands_out(record: Record) -> None:
    table = comparison(record)
    assert table.head == ("sparsity", "weights left", "mp", "cbs")
    assert [row[:2] for row in table.rows] == [("0.5", "201"), ("0.9", "41")]
    assert table.best == {(0, 3), (1, 3)}
    short = comparison(record, "loss", counted=False)
    assert short.head == ("sparsity", "mp", "cbs")
    assert short.best == {(0, 2), (1, 2)}
    assert float(short.rows[0][1]) > float(short.rows[0][2])


def test_everything_and_layers_count_exactly(record: Record) -> None:
    table = everything(record)
    assert len(table.rows) == 4
    first = dict(zip(table.head, table.rows[0], strict=True))
    assert (first["pruned"], first["of"], first["seconds"]) == ("199", "400", "3.75")
    assert layers(record.outcomes[0]).rows == (
        ("a", "8×25", "100", "200", "50.00%"),
        ("b", "8×25", "99", "200", "49.50%"),
        ("all", "", "199", "400", "49.75%"),
    )


def test_costs_show_what_was_measured_alone(record: Record, make_run: Make, cost: Any, tmp_path: Path) -> None:
    known = costs(record)
    assert known is not None
    assert known.head == ("method", "sparsity", "file, bytes")
    assert known.rows[0] == ("mp", "0.5", "4,321")
    full = costs(read_record([make_run(tmp_path / "full", ["a"], ["mp"], [0.5], cost=cost)]))
    assert full is not None
    assert dict(zip(full.head, full.rows[0], strict=True)) == {
        "method": "mp",
        "sparsity": "0.5",
        "file, bytes": "4,321",
        "dense, bytes": "130,344",
        "compressed, bytes": "12,345",
        "multiply-adds, dense": "32,200",
        "multiply-adds, effective": "1,618",
        "batch": "1",
        "torch, ms": "0.0421",
    }


def test_a_run_without_data_has_no_losses(make_cell: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """Neither loss is known then; a loss that is missing after it was there before has diverged."""
    cell = tmp_path / "cell"
    saved = make_cell(cell, ["a"], "mp", 0.5)
    (cell / "measured.json").unlink()
    for before, told in ((None, ("–", "–")), (0.25, ("0.2500", "not finite"))):
        (cell / "result.json").write_text(json.dumps({**saved, "loss_before": before, "loss_after": None}))
        record = read_record([cell])
        assert record.metrics == ["sample loss"]
        assert everything(record).rows[0][-3:-1] == told
        assert comparison(record).rows[0][-1] == told[1]


def test_figures_are_readable() -> None:
    assert figure(93.9712, "accuracy") == "93.97"
    assert [figure(value) for value in (0.0, 1.23456, 1e-5, 123.456)] == ["0.0000", "1.2346", "1e-05", "123.456"]

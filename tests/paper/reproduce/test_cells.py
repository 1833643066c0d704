"""Cells: computed once, resumed, shown beside the paper's figures."""

import json
from pathlib import Path

import pytest
from reproducing import METHODS, run

from brainsurgeon import BrainsurgeonError
from brainsurgeon.paper.reproduce.cells import cell_file, read_cells
from brainsurgeon.paper.reproduce.protocol import Protocol
from brainsurgeon.paper.reproduce.show import show


def test_each_cell_records_exact_counts_and_how_it_came_about(protocol: Protocol, tmp_path: Path) -> None:
    run(protocol, tmp_path)
    found = {cell["method"]: cell for cell in read_cells(tmp_path, "mlpnet")}
    assert set(found) == set(METHODS)
    for cell in found.values():
        assert (cell["pruned"], cell["size"], cell["seed"]) == (29_124, 32_360, 0)
        assert 0 < cell["accuracy"] <= 100
        assert cell["settings"]["method"]["num_gradients"] == 40
        assert cell["versions"]["torch"]
    assert found["cbs@1"]["scale"] == 1.0
    published = found["cbs-s-published"]["settings"]["method"]
    assert (published["whole_loss"], published["selection_damping"]) == (True, 0.0)
    assert found["cbs-published"]["settings"]["method"]["update"] == {"type": "Joint"}
    assert found["cbs-published"]["scale"] is None  # whole, and nothing looked for another
    assert "inverse" in found["wf"]["seconds"]
    assert "inverse" not in found["mp"]["seconds"]


def test_a_finished_cell_is_never_computed_again_and_a_torn_line_is(protocol: Protocol, tmp_path: Path) -> None:
    run(protocol, tmp_path)
    path = cell_file(tmp_path, "mlpnet", 0)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1][:40]]) + "\n")
    run(protocol, tmp_path)
    again = path.read_text().splitlines()
    assert again[: len(lines) - 1] == lines[:-1]
    old, new = json.loads(lines[-1]), read_cells(tmp_path, "mlpnet")[-1]
    assert (old["method"], old["accuracy"]) == (new["method"], new["accuracy"])


def test_nothing_recorded_is_said_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(BrainsurgeonError, match="brainsurgeon reproduce table2"):
        show("table2", ["resnet20"], tmp_path, tmp_path)

"""Tables of ours beside the paper's."""

from pathlib import Path

from reproducing import run

from brainsurgeon.paper.reproduce.cells import Cell
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, Protocol
from brainsurgeon.paper.reproduce.published import PUBLISHED
from brainsurgeon.paper.reproduce.show import show
from brainsurgeon.paper.reproduce.tables import ABLATION, COLUMNS, TITLES, YARDSTICK, heading, table


def test_a_table_shows_ours_with_the_published_figure_in_brackets(protocol: Protocol, tmp_path: Path) -> None:
    run(protocol, tmp_path)
    text = show("table1", ["mlpnet"], tmp_path, tmp_path)
    assert "29,124 of 32,360" in text
    assert f"({PUBLISHED['mlpnet']['mp'][0.9]:.2f})" in text
    assert "| CBS-S as published | CBS-S, ours | WF | CBS as published | CBS, ours |" in text
    assert text.count(f"({PUBLISHED['mlpnet']['cbs'][0.9]:.2f})") == 2  # the paper's figure is beside both


def cell(method: str, seed: int, accuracy: float) -> Cell:
    return {"method": method, "sparsity": 0.9, "seed": seed, "accuracy": accuracy, "pruned": 90, "size": 100}


def test_an_entry_is_the_mean_with_its_spread_and_a_dash_where_there_is_nothing() -> None:
    cells = [cell("mp", 0, 80.0), cell("mp", 1, 82.0), cell("cbs", 0, 93.0), cell("cbs", 1, 93.0)]
    cells.append({**cell("wf", 0, 50.0), "sparsity": 0.5})
    lines = table(cells, "mlpnet").splitlines()
    assert lines[0] == "| sparsity | pruned | MP | WF | CBS, ours |"
    assert lines[2] == "| 0.50 | 90 of 100 | – | 50.00 (94.02) | – |"
    assert lines[3] == "| 0.90 | 90 of 100 | 81.00 ± 1.41 (90.30) | – | 93.00 (93.14) |"
    assert "mean over 2 seed(s)" in heading("mlpnet", cells)


def test_every_method_of_a_table_has_a_title() -> None:
    methods = {method for protocol in PROTOCOLS.values() for method in protocol.methods}
    assert methods | set(COLUMNS) | set(ABLATION) | set(YARDSTICK) <= set(TITLES)

"""Figures drawn from recorded cells."""

import sys
from pathlib import Path

import pytest
from reproducing import run

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.paper.reproduce.figures import curves, means, pyplot
from brainsurgeon.paper.reproduce.protocol import Protocol
from brainsurgeon.paper.reproduce.show import show


@pytest.mark.parametrize("figure", ["figure3", "figure4", "figure5", "runtime"])
def test_each_figure_is_drawn_from_cells(protocol: Protocol, tmp_path: Path, figure: str) -> None:
    pytest.importorskip("matplotlib")
    run(protocol, tmp_path)
    show(figure, ["mlpnet"], tmp_path, tmp_path / "figures")
    assert "<svg" in (tmp_path / "figures" / f"{figure}.svg").read_text()


def test_means_are_over_seeds_and_rise_with_the_sparsity() -> None:
    cells = [
        {"method": method, "sparsity": sparsity, "accuracy": value}
        for method, sparsity, value in (("mp", 0.9, 1.0), ("mp", 0.5, 4.0), ("mp", 0.9, 2.0), ("wf", 0.5, 9.0))
    ]
    assert means(cells, "mp", lambda cell: cell["accuracy"]) == ([0.5, 0.9], [4.0, 1.5])
    assert means(cells, "cbs", lambda cell: cell["accuracy"]) == ([], [])


def test_the_same_cells_give_the_same_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    cells = [{"method": "mp", "sparsity": sparsity, "accuracy": 90.0} for sparsity in (0.5, 0.9)]
    for name in ("one", "other"):
        curves({"mlpnet": cells}, tmp_path / "new" / f"{name}.svg")
    assert (tmp_path / "new" / "one.svg").read_bytes() == (tmp_path / "new" / "other.svg").read_bytes()


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BrainsurgeonError, match=r"pip install 'brainsurgeon\[plots\]'"):
        pyplot()

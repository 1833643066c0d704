"""Cells: computed once, resumed, shown beside the paper's figures."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from brainsurgeon import BrainsurgeonError
from brainsurgeon.paper.datasets.embedded import load_demo
from brainsurgeon.paper.reproduce import cells
from brainsurgeon.paper.reproduce.cells import cell_file, compute, read_cells
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, Protocol, load_network, training_samples
from brainsurgeon.paper.reproduce.published import PUBLISHED
from brainsurgeon.paper.reproduce.show import show

METHODS = ("mp", "wf", "cbs-s-published", "cbs-published", "cbs-s", "cbs", "cbs@1")


@pytest.fixture
def protocol(monkeypatch: pytest.MonkeyPatch) -> Protocol:
    """MLPNet's protocol, on the network and the digits in the package, with few gradients."""
    model, data = load_demo()
    monkeypatch.setattr(cells, "load_network", lambda protocol, folders: model)
    monkeypatch.setattr(cells, "load_images", lambda protocol, root: data)
    settings = {"num_gradients": 40, "blocks": "layer", "damping": 1e-3, "loss_samples": 64}
    return replace(PROTOCOLS["mlpnet"], settings=settings, methods=METHODS)


def run(protocol: Protocol, folder: Path) -> None:
    compute(protocol, folder, [], sparsities=(0.9,), seeds=[0])


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


def test_a_table_shows_ours_with_the_published_figure_in_brackets(protocol: Protocol, tmp_path: Path) -> None:
    run(protocol, tmp_path)
    text = show("table1", ["mlpnet"], tmp_path, tmp_path)
    assert "29,124 of 32,360" in text
    assert f"({PUBLISHED['mlpnet']['mp'][0.9]:.2f})" in text
    assert "| CBS-S as published | CBS-S, ours | WF | CBS as published | CBS, ours |" in text
    assert text.count(f"({PUBLISHED['mlpnet']['cbs'][0.9]:.2f})") == 2  # the paper's figure is beside both


@pytest.mark.parametrize("figure", ["figure3", "figure4", "figure5", "runtime"])
def test_each_figure_is_drawn_from_cells(protocol: Protocol, tmp_path: Path, figure: str) -> None:
    pytest.importorskip("matplotlib")
    run(protocol, tmp_path)
    show(figure, ["mlpnet"], tmp_path, tmp_path / "figures")
    assert "<svg" in (tmp_path / "figures" / f"{figure}.svg").read_text()


def test_nothing_recorded_is_said_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(BrainsurgeonError, match="brainsurgeon reproduce table2"):
        show("table2", ["resnet20"], tmp_path, tmp_path)


def test_a_missing_checkpoint_is_said_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(BrainsurgeonError, match=r"mnist_25_epoch_93\.97\.ckpt is in none of"):
        load_network(PROTOCOLS["mlpnet"], [tmp_path])


def test_few_images_are_drawn_anew_for_every_batch_and_repeat_by_seed() -> None:
    _, data = load_demo()
    protocol = replace(PROTOCOLS["mlpnet"], resample=True)
    first, second = (training_samples(protocol, data, seed=3) for _ in range(2))
    batches = [next(first) for _ in range(3)]
    assert all((a[0] == b[0]).all() for a, b in zip(batches, second, strict=False))
    assert not (batches[0][0] == batches[1][0]).all()

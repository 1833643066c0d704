"""Every cell of the table of tasks is done, or refused in the words that the table has for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks import COLUMNS, TASKS, YES, Task, markdown
from torch import Tensor

import brainsurgeon
from brainsurgeon import BrainsurgeonError, PruningResult
from brainsurgeon.export import load_csr, save_csr, to_csr, to_onnx, to_sparse_modules
from brainsurgeon.network.match import leaves

ROOT = Path(__file__).parents[2]
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "auto, quick": ("auto", {"effort": "quick"}),
    "layerwise": ("layerwise", {}),
    "cbs": ("cbs", {"num_gradients": 24}),
    "gradual": ("gradual", {"max_gradients": 400}),
}


def pruned(task: Task, method: str, data: Any = None, loss: str = "", **settings: Any) -> PruningResult:
    data = task.data() if data is None else data
    result = brainsurgeon.prune(task.model(), data, 0.5, method, loss or task.loss, **task.settings, **settings)
    assert result.pruned == -(-result.size // 2)
    assert all(bool((result.model.get_parameter(name)[mask] == 0).all()) for name, mask in result.masks.items())
    return result


def outputs(task: Task, model: torch.nn.Module) -> list[Tensor]:
    inputs = task.inputs(task.data())
    with torch.no_grad():
        found = model.eval()(**inputs) if isinstance(inputs, dict) else model.eval()(inputs)
    return [leaf for _, leaf in leaves(found)]


def by_method(task: Task, folder: Path, column: str) -> None:
    method, settings = METHODS[column]
    result = pruned(task, method, **settings)
    assert result.loss_after is not None
    assert result.loss_after < 100


def without_labels(task: Task, folder: Path, column: str) -> None:
    """Magnitude, and two methods that see the outputs alone: these keep them better."""
    inputs = task.inputs(task.data())
    plain = pruned(task, "mp", inputs, task.match)
    for method, settings in (METHODS["layerwise"], METHODS["cbs"]):
        result = pruned(task, method, inputs, task.match, **settings)
        assert result.loss_before == 0.0
        assert result.loss_after is not None
        assert plain.loss_after is not None
        assert result.loss_after < plain.loss_after


def saved(task: Task, folder: Path, column: str) -> None:
    result = pruned(task, "mp")
    fresh = task.model()
    loaded = PruningResult.load(result.save(folder / "saved", compressed=True), fresh)
    assert loaded.pruned == result.pruned
    assert all(torch.equal(loaded.masks[name], mask) for name, mask in result.masks.items())
    pairs = zip(outputs(task, result.model), outputs(task, fresh), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def as_csr(task: Task, folder: Path, column: str) -> None:
    result = pruned(task, "mp")
    stored = load_csr(save_csr(to_csr(result.model, result.masks), folder / "weights.safetensors"))
    assert sum(tensor.values().numel() for tensor in stored.values()) == result.size - result.pruned
    sparse, changed = to_sparse_modules(result.model, result.masks)
    assert changed
    pairs = zip(outputs(task, result.model), outputs(task, sparse), strict=True)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)


def exported(task: Task, folder: Path, column: str) -> None:
    result, inputs = pruned(task, "mp"), task.inputs(task.data())
    example = {key: value[:2] for key, value in inputs.items()} if isinstance(inputs, dict) else inputs[:2]
    assert to_onnx(result.model, example, folder / "model.onnx").difference < 1e-4


def scored(task: Task, folder: Path, column: str) -> None:
    """The metric is the one that the loss suggests where it suggests one."""
    model = pruned(task, "mp").model
    found = brainsurgeon.evaluate(model, task.data(), task.score, task.loss)
    assert set(found) == {task.score, "loss"}
    suggested = brainsurgeon.evaluate(model, task.data(), loss=task.loss)
    assert suggested.get(task.score, found[task.score]) == found[task.score]


DONE: dict[str, Callable[[Task, Path, str], None]] = {
    **dict.fromkeys(METHODS, by_method),
    "without labels": without_labels,
    "saved and loaded": saved,
    "CSR": as_csr,
    "ONNX": exported,
    "metric": scored,
}


def marked(column: str) -> Any:
    """Mark the cells that take ten seconds: ONNX traces the network."""
    return pytest.param(column, marks=pytest.mark.slow) if column == "ONNX" else column


@pytest.mark.parametrize("column", [marked(column) for column in COLUMNS])
@pytest.mark.parametrize("name", TASKS)
def test_the_cell_is_as_the_table_says(name: str, column: str, tmp_path: Path) -> None:
    task = TASKS[name]
    if "Hugging Face" in name:
        pytest.importorskip("transformers")
    if column == "ONNX":
        pytest.importorskip("onnxscript", reason="needs brainsurgeon[onnx]")
        pytest.importorskip("onnxruntime", reason="needs brainsurgeon[onnx]")
    if task.cell(column) == YES:
        DONE[column](task, tmp_path, column)
        return
    with pytest.raises(BrainsurgeonError) as refused:
        DONE[column](task, tmp_path, column)
    assert task.cell(column) in str(refused.value)


def test_the_documentation_shows_this_table() -> None:
    assert markdown() in (ROOT / "docs" / "your-model.md").read_text()

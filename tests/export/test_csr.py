"""Sparse rows: the same matrices, the same outputs, and files that are checked."""

from pathlib import Path

import pytest
import torch
from cases import CASES, TABLE, Case
from torch import nn

from brainsurgeon import prune
from brainsurgeon.export import load_csr, save_csr, to_csr, to_sparse_modules
from brainsurgeon.files import FileError
from brainsurgeon.files.sealed import write_sealed


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_the_rows_hold_the_kept_weights_and_come_back_from_a_file(case: Case, tmp_path: Path) -> None:
    result = prune(case.model(), case.data(), 0.6, "mp", case.loss, num_gradients=1, progress=False)
    path = save_csr(to_csr(result.model, result.masks), tmp_path / "weights.safetensors")
    for name, tensor in load_csr(path).items():
        weight = result.model.get_parameter(name).detach()
        assert torch.equal(tensor.to_dense(), weight.reshape(len(weight), -1))
        assert len(tensor.values()) == int((~result.masks[name]).sum())


def test_layers_that_compute_with_rows_give_the_same_outputs() -> None:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.Conv2d(6, 6, 1, stride=2), nn.Flatten(2), nn.Linear(4, 5)
    )
    images = torch.randn(2, 3, 6, 6, generator=generator)
    targets = torch.randn(2, 6, 5, generator=generator)
    result = prune(model, (images, targets), 0.7, "mp", "mse", num_gradients=1, progress=False)
    sparse, changed = to_sparse_modules(result.model, result.masks)
    assert changed == ["0", "5"]  # neither the 3×3 convolution nor the strided one
    assert torch.allclose(sparse(images), result.model(images), atol=1e-5)
    assert isinstance(result.model[5], nn.Linear)
    assert to_sparse_modules(result.model, result.masks, least=0.999)[1] == []


def test_empty_batches_and_single_samples_are_taken_as_dense_layers_take_them() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Linear(5, 4))
    result = prune(model, (torch.randn(2, 3, 4, 5), torch.randn(2, 8, 4, 4)), 0.5, "mp", "mse", progress=False)
    sparse, changed = to_sparse_modules(result.model, result.masks)
    assert changed == ["0", "1"]
    for shape in ((0, 3, 4, 5), (3, 4, 5), (3, 3, 5), (2, 3, 4, 5)):
        inputs = torch.randn(shape)
        torch.testing.assert_close(sparse(inputs), result.model(inputs))
    torch.testing.assert_close(sparse[1](torch.ones(5)), result.model[1](torch.ones(5)))


def test_damaged_rows_are_refused(tmp_path: Path) -> None:
    parts = {"w::crow": torch.tensor([0, 1, 2]), "w::col": torch.tensor([0, 9]), "w::values": torch.ones(2)}
    for changes, info in [
        ({}, {"shapes": {"w": [2, 3]}}),  # a column outside the matrix
        ({"w::col": torch.tensor([0, 1, 2])}, {"shapes": {"w": [2, 3]}}),
        ({"w::crow": torch.tensor([0, 2, 1])}, {"shapes": {"w": [2, 3]}}),
        ({"w::col": torch.tensor([0, 1])}, {"shapes": {"w": [-2, 3]}}),
        ({"w::col": torch.tensor([0, 1])}, {"shapes": {"v": [2, 3]}}),
        ({"w::col": torch.tensor([0, 1])}, {"shapes": [2]}),
        ({"w::col": torch.tensor([0, 1])}, {}),
        ({"w::col": torch.tensor([0, 1]), "more": torch.ones(1)}, {"shapes": {"w": [2, 3]}}),
    ]:
        write_sealed({**parts, **changes}, tmp_path / "csr", "csr", info)
        with pytest.raises(FileError):
            load_csr(tmp_path / "csr")
    write_sealed({**parts, "w::col": torch.tensor([0, 1])}, tmp_path / "csr", "csr", {"shapes": {"w": [2, 3]}})
    assert load_csr(tmp_path / "csr")["w"].to_dense().sum() == 2


def test_the_linear_case_is_a_linear_layer() -> None:
    case = CASES["linear"]
    result = prune(case.model(), case.data(), 0.6, "mp", num_gradients=1, progress=False)
    sparse, changed = to_sparse_modules(result.model)
    assert changed == ["0", "2"]
    assert torch.allclose(sparse(case.data()[0]), result.model(case.data()[0]), atol=1e-6)

"""A sample is found in the user's data, by a number that the user knows."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from brainsurgeon.samples import where as module
from brainsurgeon.samples.where import where

X, Y = torch.arange(40.0).reshape(20, 2), torch.arange(20)
X[13, 1] = torch.nan
SAMPLE = (X[13:14].clone(), Y[13:14].clone())


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ((X, Y), "index 13 of the data"),
        (TensorDataset(X, Y), "index 13 of the data set"),
        (DataLoader(TensorDataset(X, Y), 4, shuffle=True), "index 13 of the data set"),
        ([(X[:10], Y[:10]), (X[10:], Y[10:])], "sample 3 of batch 1 of the data"),
    ],
    ids=["tensors", "data set", "shuffled loader", "batches"],
)
def test_a_sample_with_nan_is_found_in_every_kind_of_data(data: Any, place: str) -> None:
    assert where(data, SAMPLE) == place


def test_a_sample_that_differs_in_its_label_or_in_its_form_is_another() -> None:
    assert where((X, Y), (SAMPLE[0], SAMPLE[1] + 1)) == ""
    assert where((X, Y), (SAMPLE[0],)) == ""
    assert where((X, Y), (SAMPLE[0].reshape(1, 1, 2), SAMPLE[1])) == ""


class Broken(Dataset[Tensor]):
    """Has a length, and nothing else."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Tensor:
        raise OSError("the disk is gone")


def test_where_nothing_can_be_found_nothing_is_said() -> None:
    """An iterator is not read: its batches may be needed."""
    batches = iter([(X, Y)])
    assert where(batches, SAMPLE) == ""
    assert next(batches)[0] is X
    assert where(Broken(), SAMPLE) == ""
    assert where(None, SAMPLE) == ""


def test_a_large_data_set_is_looked_through_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SEARCHED", 13)
    assert where(TensorDataset(X, Y), SAMPLE) == ""
    monkeypatch.setattr(module, "MOST_SEARCHED", 14)
    assert where(TensorDataset(X, Y), SAMPLE) == "index 13 of the data set"

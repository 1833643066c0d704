"""Masks as bits say what they said before, in an eighth of the bytes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.network.packed import PackedMasks


@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(0, 99))
def test_masks_come_back_as_they_went_in(shape: list[int], seed: int) -> None:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    packed = PackedMasks()
    packed["a"] = mask
    assert packed["a"].dtype == torch.bool
    assert torch.equal(packed["a"], mask)
    assert packed.nbytes == -(-mask.numel() // 8)


def test_it_is_a_mapping() -> None:
    packed = PackedMasks()
    packed.update({"a": torch.tensor([True, False]), "b": torch.tensor([[True]])})
    del packed["a"]
    assert list(packed) == ["b"]
    assert len(packed) == 1
    assert "a" not in packed
    packed["b"].fill_(False)
    assert packed["b"].item() is True, "what is taken out is a copy"

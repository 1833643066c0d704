"""A pruned state dict as bits and values, and back."""

from __future__ import annotations

import pytest
import torch
from bits_of import DTYPES, same_bits
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.files.compressed import compress, expand
from brainsurgeon.files.sealed import FileError


@given(
    st.sampled_from([*DTYPES, torch.float8_e4m3fn, torch.int8]),
    st.lists(st.integers(0, 7), max_size=4).map(tuple),
    st.floats(0, 1),
    st.integers(0, 99),
)
def test_any_bits_survive(dtype: torch.dtype, shape: tuple[int, ...], share: float, seed: int) -> None:
    """Infinities, NaNs with their payload, negative and kept zeros included: a kept value is never looked at."""
    generator = torch.Generator().manual_seed(seed)
    width = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 256, (*shape, width), generator=generator, dtype=torch.uint8)
    mask = torch.rand(shape, generator=generator) < share
    raw[mask] = 0
    if raw.dim() == 1 and dtype == torch.float8_e4m3fn:
        return  # a single number of one byte has no view in PyTorch
    tensor = raw.view(dtype).squeeze(-1)
    state, masks = expand(*compress({"w": tensor, "b": tensor.clone()}, {"w": mask}))
    assert same_bits(state["w"], tensor)
    assert same_bits(state["b"], tensor)
    assert torch.equal(masks["w"], mask)


def test_a_tied_tensor_is_named_after_the_masked_one_and_shares_its_memory_again() -> None:
    """Whichever of the two names the mask has, and whichever comes first."""
    weight, mask = torch.tensor([[0.0, 2.0], [3.0, 0.0]]), torch.tensor([[True, False], [False, True]])
    stored, info = compress({"a": weight, "z": weight, "other": torch.ones(1)}, {"z": mask})
    assert sorted(stored) == ["other", "z::kept", "z::values"]
    assert info == {"shapes": {"z": [2, 2]}, "tied": {"a": "z"}}
    assert stored["z::values"].tolist() == [2.0, 3.0]
    state, masks = expand(stored, info)
    assert state["a"] is state["z"]
    assert torch.equal(state["a"], weight)
    assert list(masks) == ["z"]


def test_names_that_hold_the_mark_of_a_part_are_refused() -> None:
    with pytest.raises(FileError, match="'a::b' cannot be stored compressed"):
        compress({"a::b": torch.ones(2)}, {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shapes": {"w": [4], "v": [4]}}, "description and its tensors differ in 'v::"),
        ({"shapes": {}}, "description and its tensors differ in 'w::"),
        ({"shapes": {"w": [-4]}}, "does not say the shapes"),
        ({"shapes": {"w": 4}}, "does not say the shapes"),
        ({"shapes": {"w": [3]}}, "goes on after its 3 weights"),
        ({"tied": {"u": "absent"}}, "names a tensor twice, or one that is not there"),
        ({"tied": {"b": "w"}}, "names a tensor twice, or one that is not there"),
        ({"shapes": {"w": [2**40]}}, "would expand"),
    ],
    ids=str,
)
def test_a_description_that_is_not_true_is_refused(change: dict[str, object], words: str) -> None:
    stored, info = compress({"w": torch.tensor([0.0, 1, 2, 3]), "b": torch.ones(2)}, {"w": torch.arange(4) < 1})
    with pytest.raises(FileError, match=words):
        expand(stored, {**info, **change})


def test_values_of_another_number_than_the_mask_keeps_are_refused() -> None:
    stored, info = compress({"w": torch.tensor([0.0, 1, 2, 3])}, {"w": torch.arange(4) < 1})
    with pytest.raises(FileError, match=r"'w' keeps 3 weights by its mask, and has values of shape \(2,\)"):
        expand({**stored, "w::values": stored["w::values"][:2]}, info)

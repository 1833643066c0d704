"""Masks as bits: back as they were, in no more bytes than one bit a weight, and nothing but what fits."""

import zlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.files import FileError, bits

shapes = st.lists(st.integers(0, 9), min_size=0, max_size=4).map(tuple)


@given(shapes, st.floats(0, 1), st.integers(0, 99))
def test_masks_come_back(shape: tuple[int, ...], share: float, seed: int) -> None:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share
    code = bits.encode(mask)
    assert len(code) <= (mask.numel() + 7) // 8
    assert torch.equal(bits.decode(code, shape, "w"), mask)


@pytest.mark.parametrize("sparsity", [0.5, 0.8, 0.9, 0.95, 0.98])
def test_a_mask_costs_a_bit_a_weight_at_most_and_less_where_it_is_sparse(sparsity: float) -> None:
    mask = torch.rand(100_000, generator=torch.Generator().manual_seed(0)) < sparsity
    entropy = -(sparsity * torch.tensor(sparsity).log2() + (1 - sparsity) * torch.tensor(1 - sparsity).log2())
    bits_a_weight = 8 * len(bits.encode(mask)) / 100_000
    assert bits_a_weight <= 1.0
    assert bits_a_weight <= float(entropy) * 1.4


def test_bits_that_do_not_fit_are_refused() -> None:
    mask = torch.arange(100) % 3 == 0
    code = bits.encode(mask)
    with pytest.raises(FileError, match="goes on after its 97 weights"):
        bits.decode(code, (97,), "w")
    with pytest.raises(FileError, match="has 13 bytes; 9 weights need 2"):
        bits.decode(code, (9,), "w")
    with pytest.raises(FileError, match="cannot be inflated"):
        bits.decode(code, (1000,), "w")
    with pytest.raises(FileError, match="a row of bytes"):
        bits.decode(code.float(), (100,), "w")


def test_a_stream_that_would_fill_the_memory_is_cut_off() -> None:
    bomb = torch.frombuffer(bytearray(zlib.compress(bytes(10**7), 9)), dtype=torch.uint8)
    with pytest.raises(FileError, match="does not hold its 50000 bytes"):
        bits.decode(bomb, (400_000,), "w")
    tail = bytearray(zlib.compress(bytes(50_000), 9) + b"tail")
    with pytest.raises(FileError, match="does not hold"):
        bits.decode(torch.frombuffer(tail, dtype=torch.uint8), (400_000,), "w")

"""The idx format gives back what was written, and refuses what is damaged."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brainsurgeon.paper.datasets import DataError
from brainsurgeon.paper.datasets.idx import decode_idx, encode_idx, read_idx


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_idx_gives_back_what_was_written(shape: list[int], seed: int) -> None:
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(decode_idx(encode_idx(array), "memory"), array)


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"\0\0\x08\x02\0\0", b"PNG.", b"\0\0\x08\1\0\0\0\3ab"])
def test_damaged_idx_files_are_refused(content: bytes) -> None:
    with pytest.raises(DataError, match="there"):
        decode_idx(content, "there")


def test_a_file_may_be_packed_and_only_bytes_are_written(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert encode_idx(array)[:12] == b"\0\0\x08\2\0\0\0\2\0\0\0\3"
    (tmp_path / "plain").write_bytes(encode_idx(array))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(encode_idx(array)))
    for name in ("plain", "packed.gz"):
        assert np.array_equal(read_idx(tmp_path / name), array)
    with pytest.raises(TypeError, match="Expected uint8 values, got int64"):
        encode_idx(np.arange(3))
    (tmp_path / "packed.gz").write_bytes(b"not packed")
    with pytest.raises(DataError, match=r"Could not read .*packed\.gz"):
        read_idx(tmp_path / "packed.gz")

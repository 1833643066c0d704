"""Two ranks against one, one rank against no group, and ranks that do not keep up. Processes over gloo on the CPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from launching import alone, check_both, check_close, environment, launch
from ranks import WAYS, pruned_in, saved_form
from safetensors.torch import load_file
from torch import Tensor

from brainsurgeon import BrainsurgeonError, distributed

PROGRAM = Path(__file__).parent / "helpers" / "ranks.py"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks left."""
    folder = tmp_path_factory.mktemp("ranks")
    assert launch(PROGRAM, folder) == [0, 3]  # the second dies at the end
    return folder


def left(folder: Path, way: str, rank: int) -> dict[str, Tensor]:
    return load_file(folder / f"{way}.{rank}".replace(":", "-"))


@pytest.mark.parametrize("way", WAYS)
def test_both_ranks_hold_the_same_model_bit_for_bit(two: Path, way: str) -> None:
    check_both(left(two, way, 0), left(two, way, 1))


@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_equal_one_within_rounding(two: Path, way: str) -> None:
    check_close(left(two, way, 0), saved_form(pruned_in(way)))


def test_blocks_of_rows_tell_of_their_rounding_once(two: Path) -> None:
    assert left(two, "blocks", 0)["told"][1] == 1


@pytest.mark.parametrize("way", ["global", "rows", "2:4"])
def test_one_rank_equals_no_group_bit_for_bit(way: str) -> None:
    expected = saved_form(pruned_in(way))
    with alone():
        assert dist.is_initialized()
        found = saved_form(pruned_in(way))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_ranks_with_other_samples_models_or_none_are_refused_at_once(two: Path) -> None:
    for number, words in enumerate(["different samples", "different models", "1 batches .* 2 ranks"]):
        for rank in (0, 1):
            told = (two / f"refused-{number}.{rank}").read_text()
            assert re.search(words, told), told


def test_a_rank_that_dies_is_told_of(two: Path) -> None:
    told = (two / "died").read_text()
    assert re.match(r"the ranks could not (add up a tensor|send a tensor round) \(.*: another rank stopped", told)


def test_a_rank_that_never_comes_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(2).items() | {"RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BrainsurgeonError, match=r"could not meet .* longer timeout"):
        distributed.start(timeout=0.5)
    assert not dist.is_initialized()


def test_without_a_group_all_are_identities() -> None:
    tensor = torch.arange(6.0).view(3, 2)
    assert (distributed.rank(), distributed.world_size(), distributed.is_first()) == (0, 1, True)
    assert list(distributed.shard(5)) == [0, 1, 2, 3, 4]
    assert distributed.shard_sizes(5) == [5]
    assert distributed.sum_over_ranks(tensor) is tensor
    assert distributed.broadcast(tensor, 0) is tensor
    assert distributed.agreed(0.1) == 0.1
    assert distributed.gather_rows(tensor, [3]) is tensor
    assert distributed.gather_words(["a", "b"]) == ["a", "b"]
    distributed.barrier()
    distributed.check_same(tensor, "numbers", "none")


def test_shares_are_whole_and_even(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "world_size", lambda: 4)
    found = []
    for rank in range(4):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        found.append(list(distributed.shard(10)))
    assert [number for each in found for number in each] == list(range(10))
    assert [len(each) for each in found] == distributed.shard_sizes(10)
    assert {len(each) for each in found} == {2, 3}

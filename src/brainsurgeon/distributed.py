"""Several processes at one run: sums, shares and rows over the ranks of `torch.distributed`.

The group is the user's own; `start` makes one where `torchrun` started the processes. Without a group, or with a single
rank, every function is an identity.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from brainsurgeon.errors import BrainsurgeonError


def start(timeout: float | None = None) -> torch.device:
    """Join the processes that `torchrun` started, and return the device of this one; a single process stays alone.

    NCCL joins processes with a GPU each, gloo all others. `timeout` is how many seconds a rank waits for the others;
    None leaves torch's own limit.
    """
    number = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available()
    if on_gpu and number >= torch.cuda.device_count():
        raise BrainsurgeonError(
            f"this is process {number + 1} of its machine, which has {torch.cuda.device_count()} GPUs: start one "
            "process for each GPU (torchrun --nproc-per-node)"
        )
    device = torch.device("cuda", number) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        limit = None if timeout is None else timedelta(seconds=timeout)
        _together("meet", lambda: dist.init_process_group("nccl" if on_gpu else "gloo", timeout=limit))
    return device


def stop() -> None:
    """Leave the group, where there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """Return the number of this process, from 0 on."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world_size() -> int:
    """Return how many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_first() -> bool:
    """Say whether this process is the one that tells and writes."""
    return rank() == 0


def barrier() -> None:
    """Wait for all ranks."""
    if world_size() > 1:
        _together("wait for one another", lambda: dist.barrier())


def shard(count: int) -> range:
    """Return which of `count` things are this rank's; shares differ by one at most."""
    own, ranks = rank(), world_size()
    return range(own * count // ranks, (own + 1) * count // ranks)


def shard_sizes(count: int) -> list[int]:
    """Return how many of `count` things each rank has."""
    ranks = world_size()
    return [(r + 1) * count // ranks - r * count // ranks for r in range(ranks)]


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """Return the sum of all ranks' tensors, the same bits on each; the tensor itself may be overwritten."""
    if world_size() == 1:
        return tensor
    sent = _sendable(tensor)
    _together("add up a tensor", lambda: dist.all_reduce(sent))
    return sent.to(tensor.device)


def broadcast(tensor: Tensor, source: int) -> Tensor:
    """Return the tensor of one rank; all others give one of its shape and type, which may be overwritten."""
    if world_size() == 1:
        return tensor
    sent = _sendable(tensor)
    _together("send a tensor round", lambda: dist.broadcast(sent, source))
    return sent.to(tensor.device, tensor.dtype)


def agreed(number: float) -> float:
    """Return the first rank's number, on all of them: what a clock says differs from rank to rank."""
    return number if world_size() == 1 else float(broadcast(torch.tensor(number, dtype=torch.float64), 0))


def gather_rows(tensor: Tensor, counts: Sequence[int]) -> Tensor:
    """Return the rows (entries of the first dimension) of all ranks in their order; rank r has `counts[r]` of them."""
    if world_size() == 1:
        return tensor
    sent = _sendable(tensor)
    most = max(counts)
    padded = torch.cat([sent, sent.new_zeros(most - sent.shape[0], *sent.shape[1:])])  # one size for all
    parts = [torch.empty_like(padded) for _ in counts]
    _together("gather rows", lambda: dist.all_gather(parts, padded))
    found = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
    return found.to(tensor.device, tensor.dtype)


def gather_words(words: Sequence[str]) -> list[str]:
    """Return the words of all ranks in their order."""
    if world_size() == 1:
        return list(words)
    own = torch.tensor(list("\0".join(words).encode()), dtype=torch.uint8)
    sizes = gather_rows(torch.tensor([len(own)]), [1] * world_size()).tolist()
    text = gather_rows(own, sizes).split(sizes)
    return [word for part in text for word in bytes(part.tolist()).decode().split("\0") if word]


def check_same(numbers: Tensor, what: str, remedy: str) -> None:
    """Refuse, on all ranks at once, numbers that are not the same on each."""
    if world_size() == 1:
        return
    sizes = gather_rows(torch.tensor([[numbers.numel()]]), [1] * world_size())
    alike = bool((sizes == sizes[0]).all())
    if alike:
        rows = gather_rows(numbers.detach().double().reshape(1, -1), [1] * world_size())
        alike = torch.allclose(rows, rows[:1].expand_as(rows), rtol=1e-9, atol=0.0, equal_nan=True)
    if not alike:
        raise BrainsurgeonError(f"the {world_size()} ranks have different {what}: {remedy}")


def is_sharded(tensor: Tensor) -> bool:
    """Say whether a tensor lies in shards over the ranks."""
    module = sys.modules.get("torch.distributed.tensor")  # slow to import, and not there where nothing is sharded
    return module is not None and isinstance(tensor, module.DTensor)


def gather_shards(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor that lies in shards; all ranks ask for it at once."""
    found: list[Tensor] = []
    _together("gather the shards of a parameter", lambda: found.append(tensor.full_tensor()))  # type: ignore[attr-defined]
    return found[0].clone() if found[0].data_ptr() == tensor.to_local().data_ptr() else found[0]  # type: ignore[attr-defined]


def fill_shards(tensor: Tensor, values: Tensor) -> None:
    """Write this rank's part of the values into its shard; every rank has the same values, so nothing is sent."""
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    cut = distribute_tensor(values.to(tensor.device), mesh, placements, src_data_rank=None)
    tensor.to_local().copy_(cut.to_local())  # type: ignore[attr-defined]


def _sendable(tensor: Tensor) -> Tensor:
    """Return the tensor where and as the group can send it: NCCL sends from GPUs alone, and masks go as bytes."""
    if dist.get_backend() == "nccl" and not tensor.is_cuda:
        tensor = tensor.to(torch.device("cuda", torch.cuda.current_device()))
    return (tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor).contiguous()


def _together(what: str, act: Callable[[], object]) -> None:
    """Do what takes all ranks; say in words what a failure means."""
    try:
        act()
    except (RuntimeError, ValueError) as error:
        told = str(error).strip().partition("\n")[0]
        raise BrainsurgeonError(
            f"the ranks could not {what} ({type(error).__name__}: {told}): another rank stopped, or took longer than "
            "the group waits. Look for the first error among the outputs of all ranks and start all of them again; "
            "for slow ranks make the group with a longer timeout, as in brainsurgeon.distributed.start(timeout=7200)"
        ) from error

"""A program for each rank of a test: models in shards of FSDP2 are pruned as plain ones are, bit for bit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from ranks import network, samples
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import brainsurgeon
from brainsurgeon import BrainsurgeonError, distributed

WAYS = {"global": ("layerwise", "global"), "rows": ("sparsegpt", "uniform")}


def sharded() -> torch.nn.Module:
    """The network, each block in shards and the rest in shards too; the whole is run once, as training does."""
    model = network()
    for module in model.modules():
        if type(module).__name__ == "Block":
            fully_shard(module)
    fully_shard(model)
    model(samples(300)[0][:2])  # leaves what is outside of the blocks whole
    return model


def main(folder: Path) -> None:
    """Prune both, compare, and leave a word."""
    distributed.start(timeout=60)
    for method, budget in WAYS.values():
        expected = brainsurgeon.prune(network(), samples(300), 0.5, method, budget=budget)
        model = sharded()
        found = brainsurgeon.prune(model, samples(300), 0.5, method, budget=budget, in_place=True)
        assert found.loss_after == expected.loss_after
        assert found.loss_before == expected.loss_before
        for name, mask in expected.masks.items():
            assert torch.equal(found.masks[name], mask), name
        for name, parameter in model.named_parameters():
            assert isinstance(parameter, DTensor), name
            assert torch.equal(parameter.full_tensor(), expected.model.get_parameter(name)), name
        inputs = samples(300)[0][:4]
        model.train()
        outputs = model(inputs)  # through FSDP's own hooks, forward and back
        assert torch.allclose(outputs, expected.model.train()(inputs), atol=1e-6)
        outputs.sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
    with pytest.raises(BrainsurgeonError, match="in place"):
        brainsurgeon.prune(sharded(), samples(300), 0.5, "layerwise")
    with pytest.raises(BrainsurgeonError, match="all of them at once"):
        brainsurgeon.prune(sharded(), samples(300), 0.5, "mp", in_place=True)
    model, mesh = network(), init_device_mesh("cpu", (2,))
    model[-1].weight = torch.nn.Parameter(distribute_tensor(model[-1].weight.detach(), mesh, [Shard(1)]))
    with pytest.raises(BrainsurgeonError, match="tensor parallelism"):
        brainsurgeon.prune(model, samples(300), 0.5, "layerwise", in_place=True)
    (folder / f"done-{distributed.rank()}").touch()
    distributed.stop()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))

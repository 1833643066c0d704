"""How each network is pruned, and on what."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from brainsurgeon import BrainsurgeonError
from brainsurgeon.files.checkpoint import save_checkpoint
from brainsurgeon.paper.datasets.embedded import load_demo
from brainsurgeon.paper.models import BUILDERS, build
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_network, training_samples
from brainsurgeon.paper.reproduce.published import PUBLISHED
from brainsurgeon.pruning.methods import make_method


def test_a_missing_checkpoint_is_said_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(BrainsurgeonError, match=r"mnist_25_epoch_93\.97\.ckpt is in none of"):
        load_network(PROTOCOLS["mlpnet"], [tmp_path])


def test_few_images_are_drawn_anew_for_every_batch_and_repeat_by_seed() -> None:
    _, data = load_demo()
    protocol = replace(PROTOCOLS["mlpnet"], resample=True)
    first, second = (training_samples(protocol, data, seed=3) for _ in range(2))
    batches = [next(first) for _ in range(3)]
    assert all((a[0] == b[0]).all() for a, b in zip(batches, second, strict=False))
    assert not (batches[0][0] == batches[1][0]).all()


def test_the_first_folder_with_the_checkpoint_is_taken(tmp_path: Path) -> None:
    protocol = replace(PROTOCOLS["mlpnet"], checkpoint="net.safetensors")
    for name, value in (("one", 1.0), ("two", 2.0)):
        model = build("mlpnet")
        torch.nn.init.constant_(model.fc1.weight, value)
        (tmp_path / name).mkdir()
        save_checkpoint(model, tmp_path / name / "net.safetensors")
    found = load_network(protocol, [tmp_path / "absent", tmp_path / "two", tmp_path / "one"])
    assert float(found.fc1.weight[0, 0]) == 2.0
    assert not found.training


def test_every_network_has_a_protocol_with_the_papers_sparsities() -> None:
    for name, protocol in PROTOCOLS.items():
        assert protocol.network == name in BUILDERS
        assert protocol.sparsities == tuple(PUBLISHED[name]["mp"])
        for method in protocol.methods:
            make_method(method.partition("@")[0])
    whole = training_samples(PROTOCOLS["mlpnet"], load_demo()[1], seed=0)
    assert len(whole[0]) == len(load_demo()[1].train_targets)

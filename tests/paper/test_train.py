"""Training learns, repeats itself, and records what it did."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from stripes import QUICK, stripes

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.files.checkpoint import load_checkpoint
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets import ImageData
from brainsurgeon.paper.models import build
from brainsurgeon.paper.train import DEFAULTS, TrainSettings, save_trained, train


def test_a_network_learns_what_there_is_to_learn(digits: ImageData) -> None:
    events: list[Event] = []
    model, record = train("mlpnet", digits, QUICK, callback=events.append)
    assert record.test_accuracy > 95
    assert accuracy(model, digits) == record.test_accuracy
    assert not model.training
    assert [(event.done, event.total) for event in events] == [(1, 3), (2, 3), (3, 3)]
    assert events[-1].values["loss"] < events[0].values["loss"]


def test_the_same_seed_gives_the_same_weights(digits: ImageData) -> None:
    settings = dataclasses.replace(QUICK, epochs=1, crop_padding=2, flip=True)
    before = torch.random.get_rng_state()
    first, second = (train("mlpnet", digits, settings)[0] for _ in range(2))
    other = train("mlpnet", digits, dataclasses.replace(settings, seed=1))[0]
    assert torch.equal(first.fc1.weight, second.fc1.weight)
    assert not torch.equal(first.fc1.weight, other.fc1.weight)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_convolutional_networks_train_with_augmentation() -> None:
    images = stripes(16, 0, 3, 32)
    data = ImageData("cifar10", *images, *images, mean=(0.5,) * 3, std=(0.5,) * 3)
    for name in ("cifarnet", "resnet20"):
        settings = dataclasses.replace(DEFAULTS[name], epochs=1, batch_size=8)
        _, record = train(name, data, settings)
        assert record.train_images == 16


def test_weights_and_record_are_saved_together(tmp_path: Path, digits: ImageData) -> None:
    model, record = train("mlpnet", digits, dataclasses.replace(QUICK, epochs=1))
    save_trained(model, record, tmp_path / "runs" / "net.safetensors")
    again = load_checkpoint(build("mlpnet"), tmp_path / "runs" / "net.safetensors")
    assert torch.equal(again.fc2.weight, model.fc2.weight)
    written = json.loads((tmp_path / "runs" / "net.json").read_text())
    assert written["settings"]["epochs"] == 1
    assert written["test_accuracy"] == record.test_accuracy
    assert set(written["versions"]) == {"brainsurgeon", "torch"}


def test_divergence_and_bad_settings_are_reported(digits: ImageData) -> None:
    with pytest.raises(BrainsurgeonError, match=r"diverged in epoch 1.*Lower the learning rate"):
        train("mlpnet", digits, dataclasses.replace(QUICK, learning_rate=1e20, warmup_epochs=0))
    with pytest.raises(BrainsurgeonError, match="at least one epoch"):
        TrainSettings("mnist", epochs=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_training_runs_on_a_gpu(digits: ImageData) -> None:
    model, record = train("mlpnet", digits, QUICK, device="cuda")
    assert next(model.parameters()).is_cuda
    assert record.test_accuracy > 95

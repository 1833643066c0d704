"""`brainsurgeon train`: what is written, taken up again and refused."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from brainsurgeon.app.cli import main
from brainsurgeon.paper import datasets as data_module
from brainsurgeon.paper import train as train_module
from brainsurgeon.paper.datasets import ImageData


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = torch.zeros(8, 1, 28, 28, dtype=torch.uint8), torch.zeros(8, dtype=torch.long)
    tiny = ImageData("mnist", images, labels, images, labels, (0.1,), (0.3,))
    monkeypatch.setattr(data_module, "load", lambda name, root: tiny)


@pytest.mark.usefixtures("few_digits")
def test_training_writes_weights_and_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "net.safetensors"
    assert main(["train", "mlpnet", "--epochs", "1", "--device", "cpu", "-o", str(output)]) == 0
    assert "mlpnet:" in capsys.readouterr().out
    assert output.exists()
    assert json.loads((tmp_path / "net.json").read_text())["settings"]["epochs"] == 1


@pytest.mark.usefixtures("few_digits")
def test_a_training_that_was_stopped_goes_on_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "mlpnet", "--epochs", "2", "--device", "cpu", "-o"]
    with monkeypatch.context() as stopped:
        stopped.setattr(train_module, "accuracy", lambda *_: 1 / 0)
        assert main([*command, str(tmp_path / "net.safetensors")]) == 70
    assert not (tmp_path / "net.safetensors").exists()
    assert main([*command, str(tmp_path / "net.safetensors")]) == 1
    assert "go on with --resume" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "net.safetensors"), "--resume"]) == 0
    assert main([*command, str(tmp_path / "other.safetensors")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "net.json",
        "net.safetensors",
        "other.json",
        "other.safetensors",
    ]
    found, expected = (load_file(tmp_path / f"{name}.safetensors") for name in ("net", "other"))
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_training_notices_an_unwritable_output_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(data_module, "load", lambda name, root: pytest.fail("the data were read"))
    (tmp_path / "file").write_text("")
    assert main(["train", "mlpnet", "-o", str(tmp_path / "file" / "net.safetensors")]) == 1
    assert "cannot write to" in capsys.readouterr().err


def test_training_on_imagenet_needs_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "mobilenet"]) == 1
    assert "--images TRAIN VALIDATION" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (224, 224)).save(tmp_path / "images" / name / "0.png")
    options = ["--epochs", "1", "--images", "images", "images", "--device", "cpu"]
    assert main(["train", "mobilenet-0.75", *options]) == 0
    assert (tmp_path / "mobilenet-0.75.safetensors").exists()


def test_an_unknown_network_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "lenet"]) == 1
    assert "mlpnet" in capsys.readouterr().err

"""Where a training stands after an epoch, in one sealed file: a killed training goes on from there to the same bits."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.sealed import FileError, read_sealed, write_sealed
from brainsurgeon.files.writing import plain
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.train_settings import TrainSettings

KIND = "training"
Epochs = list[dict[str, float]]


def state_of(path: Path) -> Path:
    """Return the file that holds the state of a training whose weights go to `path`."""
    return path.with_name(f".{path.name}.state")


class TrainingState:
    """The file of one training; what was trained otherwise, or on other images, is refused."""

    def __init__(self, path: Path, name: str, data: ImageData, settings: TrainSettings, device: str):
        self.path = path
        told = {"network": name, **asdict(settings), "device": device, "torch": torch.__version__}
        self._key: dict[str, Any] = plain(told | {"images": _digest(data)})

    def save(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        epochs: Epochs,
        seconds: float,
    ) -> None:
        """Keep all that the next epoch depends on, in place of the last."""
        tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
        for name, parameter in model.named_parameters():
            for what, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{what}/{name}"] = value
        tensors["generator"] = generator.get_state()
        write_sealed(tensors, self.path, KIND, {"key": self._key, "epochs": epochs, "seconds": seconds})

    def load(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator
    ) -> tuple[Epochs, float]:
        """Put the last state in place; return the epochs that are done and their seconds, none where there is none."""
        if not self.path.is_file():
            return [], 0.0
        tensors, told, _ = read_sealed(self.path, KIND)
        key = told.get("key")
        other = [name for name in self._key if not isinstance(key, dict) or key.get(name) != self._key[name]]
        if other:
            raise BrainsurgeonError(
                f"{self.path} is of another training ({', '.join(other)} differ): give what it was started with, or "
                "delete the file and start again"
            )
        try:
            model.load_state_dict({name: tensors[f"model/{name}"] for name in model.state_dict()})
            for name, parameter in model.named_parameters():
                kept = tensors.get(f"momentum_buffer/{name}")
                if kept is not None:
                    optimizer.state[parameter]["momentum_buffer"] = kept.to(parameter.device)
            generator.set_state(tensors["generator"])
            return list(told["epochs"]), float(told["seconds"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise FileError(f"{self.path} holds no whole state of a training: delete it and start again") from error


def _digest(data: ImageData) -> str:
    found = hashlib.sha256()
    for tensor in (data.train_inputs, data.train_targets):
        found.update(repr(tuple(tensor.shape)).encode())
        found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()

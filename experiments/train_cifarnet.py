"""Train CIFARNet from scratch and keep its weights, on a GPU where there is one.

    python -m experiments.train_cifarnet OUTPUT.safetensors [--data PART.npz …] [--epochs N] [--seed N]

Without `--data` CIFAR-10 is taken from the cache (`brainsurgeon data fetch cifar10`); with it, from npz
files that hold train_inputs, train_targets, test_inputs and test_targets (see experiments.pack_data), joined in the
order given. Without the safetensors package the weights are written as a .pt file. Nothing is chosen on
the test images: the epochs are fixed and the last weights are kept.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from brainsurgeon.events import Event
from brainsurgeon.paper.datasets import DATASETS, ImageData, load
from brainsurgeon.paper.train import DEFAULTS, save_trained, train

KEYS = ("train_inputs", "train_targets", "test_inputs", "test_targets")


def read_parts(paths: list[Path]) -> ImageData:
    """Join the arrays of several npz files into one data set."""
    parts = []
    for path in paths:
        with np.load(path, allow_pickle=False) as part:
            parts.append({key: part[key] for key in KEYS})
    arrays = {key: torch.from_numpy(np.concatenate([part[key] for part in parts])) for key in KEYS}
    for key in ("train_targets", "test_targets"):
        arrays[key] = arrays[key].long()
    spec = DATASETS["cifar10"]
    return ImageData(name="cifar10", mean=spec.mean, std=spec.std, **arrays)


def show(event: Event) -> None:
    """Print one line an epoch."""
    values = event.values
    accuracy, loss = values["train_accuracy"], values["loss"]
    print(f"epoch {event.done}/{event.total}  loss {loss:.4f}  train {accuracy:.2f}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print the test accuracy, write the checkpoint and its record."""
    defaults = DEFAULTS["cifarnet"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--data", type=Path, nargs="+")
    parser.add_argument("--epochs", type=int, default=defaults.epochs)
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    options = parser.parse_args(arguments)
    data = read_parts(options.data) if options.data else load("cifar10")
    settings = replace(defaults, epochs=options.epochs, learning_rate=options.learning_rate, seed=options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, record = train("cifarnet", data, settings, device, show)
    try:
        save_trained(model, record, options.output)
    except ModuleNotFoundError:  # a machine with PyTorch alone: its own format, to be converted elsewhere
        torch.save(model.state_dict(), options.output.with_suffix(".pt"))
        record.save(options.output.with_suffix(".json"))
    print(f"test accuracy {record.test_accuracy:.2f} after {record.seconds:.0f} s on {device}")


if __name__ == "__main__":
    main()

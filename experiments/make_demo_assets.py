"""Make what `brainsurgeon demo` ships: a trained MLPNet and a sample of MNIST.

    python -m experiments.make_demo_assets [FOLDER]

Needs MNIST in the cache (`brainsurgeon data fetch mnist`).
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brainsurgeon.paper.datasets import ImageData, load
from brainsurgeon.paper.train import DEFAULTS, save_trained, train
from experiments.records import ROOT

ASSETS = ROOT / "src" / "brainsurgeon" / "paper" / "assets"
TRAIN_IMAGES, TEST_IMAGES = 5_000, 2_000
SETTINGS = replace(DEFAULTS["mlpnet"], epochs=2)


def draw(data: ImageData, part: str, number: int, generator: torch.Generator) -> dict[str, np.ndarray]:
    """Draw images of a part at random; the first test images of MNIST are easier than the rest."""
    chosen = torch.randperm(len(getattr(data, f"{part}_targets")), generator=generator)[:number]
    arrays = {f"{part}_{kind}": getattr(data, f"{part}_{kind}")[chosen] for kind in ("inputs", "targets")}
    return {name: array.to(torch.uint8).numpy() for name, array in arrays.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the sample, the network and its record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ASSETS)
    folder = parser.parse_args(arguments).folder
    data = load("mnist")
    generator = torch.Generator().manual_seed(0)
    sample: dict[str, Any] = draw(data, "train", TRAIN_IMAGES, generator) | draw(data, "test", TEST_IMAGES, generator)
    np.savez_compressed(folder / "mnist_sample.npz", **sample)
    model, record = train("mlpnet", data, SETTINGS)
    save_trained(model, record, folder / "mlpnet_mnist.safetensors")
    print(f"test accuracy {record.test_accuracy:.2f}")


if __name__ == "__main__":
    main()

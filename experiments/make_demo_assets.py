"""Make what `brainsurgeon demo` ships: a trained MLPNet and a sample of MNIST.

Usage: python experiments/make_demo_assets.py [FOLDER]

Needs MNIST in the cache (`brainsurgeon data fetch mnist`).
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from brainsurgeon.paper.datasets import ImageData, load
from brainsurgeon.paper.train import DEFAULTS, save_trained, train

ASSETS = Path(__file__).parents[1] / "src" / "brainsurgeon" / "assets"
TRAIN_IMAGES, TEST_IMAGES = 5_000, 2_000
SETTINGS = replace(DEFAULTS["mlpnet"], epochs=2)


def draw(data: ImageData, part: str, number: int, generator: torch.Generator) -> dict[str, np.ndarray]:
    """Draw images of a part at random; the first test images of MNIST are easier than the rest."""
    chosen = torch.randperm(len(getattr(data, f"{part}_targets")), generator=generator)[:number]
    arrays = {f"{part}_{kind}": getattr(data, f"{part}_{kind}")[chosen] for kind in ("inputs", "targets")}
    return {name: array.to(torch.uint8).numpy() for name, array in arrays.items()}


def main(folder: Path) -> None:
    """Write the sample, the network and its record."""
    data = load("mnist")
    generator = torch.Generator().manual_seed(0)
    sample = draw(data, "train", TRAIN_IMAGES, generator) | draw(data, "test", TEST_IMAGES, generator)
    np.savez_compressed(folder / "mnist_sample.npz", **sample)
    model, record = train("mlpnet", data, SETTINGS)
    save_trained(model, record, folder / "mlpnet_mnist.safetensors")
    print(f"test accuracy {record.test_accuracy:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS)

"""The network and the sample of MNIST that come with the package: a demonstration without download."""

from importlib.resources import as_file, files

import numpy as np
from torch import nn

from brainsurgeon.files.checkpoint import load_checkpoint
from brainsurgeon.paper.datasets.cache import dataset_spec, tensors
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.models import build


def load_demo() -> tuple[nn.Module, ImageData]:
    """Give a trained MLPNet and a sample of real MNIST: 5,000 training and 2,000 test images."""
    assets = files("brainsurgeon.paper") / "assets"
    with as_file(assets / "mlpnet_mnist.safetensors") as path:
        model = load_checkpoint(build("mlpnet"), path).eval()
    with as_file(assets / "mnist_sample.npz") as path, np.load(path, allow_pickle=False) as sample:
        arrays = {part: sample[part] for part in sample}
    spec = dataset_spec("mnist")
    return model, ImageData(name="mnist-sample", mean=spec.mean, std=spec.std, **tensors(arrays))

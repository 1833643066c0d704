"""The same seed twice on a GPU, alone and beside another job that takes its time and memory: the masks are compared.

python -m experiments.again --checkpoints FOLDER [--data FOLDER] [--device cuda] [--output FILE.json]
"""

import argparse
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import torch
from torch import Tensor, nn

from brainsurgeon.files.versions import versions
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.methods import Method, make_method
from brainsurgeon.pruning.prune import prune
from experiments.records import BENCHMARKS, Record, write

SPARSITY = 0.9


def main(arguments: Sequence[str] | None = None) -> None:
    """Prune ResNet20 twice by each method and record what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--gradients", type=int, default=20_000)
    parser.add_argument("--output", type=Path, default=BENCHMARKS / "again.json")
    options = parser.parse_args(arguments)
    protocol = PROTOCOLS["resnet20"]
    images = load_images(protocol, options.data)
    model = load_network(protocol, [options.checkpoints]).to(options.device)
    methods: dict[str, Method] = {
        "cbs": make_method("cbs", {"num_gradients": 500, "blocks": "layer", "damping": 1e-5}),
        "layerwise": make_method("layerwise"),
        "auto, 1,000 samples": Auto(max_gradients=options.gradients, max_samples=1000),
        "auto, all samples": Auto(max_gradients=options.gradients),
    }
    rows: list[Record] = []
    for name, method in methods.items():  # what is finished is kept
        rows.append({"method": name} | compared(model, images, method))
        write(options.output, {"sparsity": SPARSITY, "rows": rows, "versions": versions(options.device)})


def compared(model: nn.Module, images: ImageData, method: Method) -> Record:
    """Return how many of the masks' and the weights' entries differ between two runs."""
    device = next(model.parameters()).device.type
    mask, weights, alone = once(model, images, method)
    second, others, loaded = beside(model, images, method, device)
    differing, apart, seconds = int((mask != second).sum()), float((weights - others).abs().max()), [alone, loaded]
    print(
        f"{method.name}: {differing} of {mask.numel()} differ, weights apart {apart:.1e}, seconds {seconds}",
        flush=True,
    )
    return {"differing": differing, "size": mask.numel(), "weights_apart": apart, "seconds": seconds}


def once(model: nn.Module, images: ImageData, method: Method) -> tuple[Tensor, Tensor, float]:
    """Return the masks and the weights of one run as vectors, and its seconds."""
    start, include = time.perf_counter(), PROTOCOLS["resnet20"].settings["include"]
    result = prune(model, images.train(), SPARSITY, method, include=include, seed=0, progress=False)
    weights = torch.cat([result.model.get_parameter(name).detach().flatten() for name in result.masks])
    return (
        torch.cat([mask.flatten() for mask in result.masks.values()]).cpu(),
        weights.cpu(),
        time.perf_counter() - start,
    )


def beside(model: nn.Module, images: ImageData, method: Method, device: str) -> tuple[Tensor, Tensor, float]:
    """Run once more beside another process."""
    with busy(device):
        return once(model, images, method)


@contextmanager
def busy(device: str) -> Iterator[None]:
    """Keep the device busy, and three quarters of its free memory taken, by another process."""
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    other = context.Process(target=_occupy, args=(device, ready, stop), daemon=True)
    other.start()
    ready.wait(120)
    try:
        yield
    finally:
        stop.set()
        other.join(30)


def _occupy(device: str, ready: Event, stop: Event) -> None:
    taken = torch.cuda.mem_get_info()[0] * 3 // 4 if device == "cuda" else 0
    held = torch.empty(taken, dtype=torch.uint8, device=device)
    matrix = torch.randn(4096, 4096, device=device)
    ready.set()
    while not stop.is_set():
        matrix = matrix @ matrix / 64
        if device == "cuda":
            torch.cuda.synchronize()
    del held


if __name__ == "__main__":
    main()

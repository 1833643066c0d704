"""Methods side by side on one network: the paper's, ResNet50, or a small vision transformer.

    python -m experiments.side_by_side resnet50 --checkpoints FOLDER [--methods mp auto] [--sparsities 0.5 0.7]

`auto-quick` is `auto` with the effort "quick"; a name that ends in `-uniform` has the same sparsity in every layer, as
Wanda and SparseGPT were published; all else is the library's default. FOLDER holds the paper's checkpoints,
ResNet50/ (see experiments.resnet50) and vit.safetensors (see experiments.vit). All methods prune the same weights.
Every finished run is a line of experiments/results/side-NETWORK.jsonl and is not computed again.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets import load
from brainsurgeon.paper.datasets.imagenet import load_imagenet
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.auto.method import Auto
from brainsurgeon.pruning.methods import Method, make_method
from brainsurgeon.samples.augment import crop_and_flip
from experiments.budgets import run_once, with_places
from experiments.records import CHECKPOINTS, append, command_line, is_done
from experiments.resnet50 import MEAN, STD, load_resnet50
from experiments.vit import load_vit

UNIFORM = "-uniform"
ONE_SHOT = ("mp", "wf-s", "wanda", "wanda-uniform", "sparsegpt", "sparsegpt-uniform", "layerwise", "auto-quick")


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    model, images, include = network(options.network, options.checkpoints, options.data)
    model = model.to(options.device)
    path, dense = options.results / f"side-{options.network}.jsonl", None
    for seed in options.seeds:
        for name in options.methods:
            for sparsity in options.sparsities:
                key = {"network": options.network, "method": name, "sparsity": sparsity, "seed": seed}
                key |= {"max_gradients": options.gradients if name == "auto" else None}
                key |= {"augment": True} if name == "auto" and options.augment else {}
                if is_done(path, key):
                    continue
                dense = accuracy(model, images) if dense is None else dense
                budget = "uniform" if name.endswith(UNIFORM) else "global"
                chosen = method(name.removesuffix(UNIFORM), options.gradients, options.augment)
                line = key | {"dense": dense} | run_once(model, images, chosen, key, include, budget)
                append(path, line | {"command": command_line("side_by_side", arguments or sys.argv[1:])})
                shown = f"{line['accuracy']:.2f} of {dense:.2f} in {line['seconds']:.1f} s"
                print(f"{options.network} {sparsity} seed {seed} {name}: {shown}", flush=True)


def network(name: str, checkpoints: Path, root: Path | None) -> tuple[nn.Module, ImageData, str | None]:
    """Return a network, its images, and which of its weights are pruned."""
    if name == "resnet50":
        folder = Path(os.environ.get("BRAINSURGEON_IMAGENET", "imagenet"))
        data = load_imagenet(folder / "calibration-1000.npz", folder / "validation-1000.npz", mean=MEAN, std=STD)
        return load_resnet50(checkpoints / "ResNet50"), data, None
    if name == "vit":
        return load_vit(checkpoints / "vit.safetensors"), load("cifar10", root), None
    protocol = PROTOCOLS[name]
    model = load_network(protocol, [checkpoints, CHECKPOINTS])
    return model, load_images(protocol, root), protocol.settings.get("include")


def method(name: str, gradients: int | None, augmented: bool = False) -> Method:
    """Return a method by the name it has here."""
    if name == "auto-quick":
        return Auto(effort="quick")
    if name != "auto":
        return make_method(name)
    return Auto(max_gradients=gradients, augment=crop_and_flip if augmented else None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=[*PROTOCOLS, "resnet50", "vit"])
    parser.add_argument("--methods", nargs="+", default=ONE_SHOT)
    parser.add_argument("--sparsities", type=float, nargs="+", default=[0.5, 0.7, 0.9])
    parser.add_argument("--gradients", type=int, help="sample gradients of auto; by default its standard")
    parser.add_argument("--augment", action="store_true", help="auto trains on crops and flips")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    return with_places(parser)


if __name__ == "__main__":
    main()

"""A small vision transformer for CIFAR-10, trained here: patches of 4 × 4, six blocks of width 192.

python -m experiments.vit OUTPUT.safetensors [--data FOLDER] [--epochs 40] [--device cuda]

Nothing is chosen on the test images: the epochs are fixed and the last weights are kept.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets import load
from brainsurgeon.samples.augment import crop_and_flip


class Block(nn.Module):
    """Attention and two linear layers, each behind a layer norm and added to what comes in."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.keys, self.values = (nn.Linear(width, width) for _ in range(3))
        self.mixed, self.up, self.down = (
            nn.Linear(width, width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's outputs for tokens (batch, tokens, width)."""
        normed = self.first(x)
        parts = (layer(normed).unflatten(-1, (self.heads, -1)) for layer in (self.queries, self.keys, self.values))
        q, k, v = (part.transpose(1, 2) for part in parts)
        looked = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.mixed(looked)
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class ViT(nn.Module):
    """The network."""

    def __init__(self, width: int = 192, blocks: int = 6, heads: int = 6, patch: int = 4, size: int = 32):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(torch.zeros(1, (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        logits: Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return logits


def load_vit(path: Path) -> ViT:
    """Return the trained network."""
    model = ViT()
    model.load_state_dict(load_file(path))
    return model.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    images = load("cifar10", options.data)
    torch.manual_seed(options.seed)
    start, model = time.perf_counter(), train(ViT().to(options.device), *images.train(), options.epochs, options.seed)
    print(f"test accuracy {accuracy(model, images):.2f} after {time.perf_counter() - start:.0f} s")
    save_file({name: value.contiguous().cpu() for name, value in model.state_dict().items()}, options.output)


def train(model: nn.Module, inputs: Tensor, targets: Tensor, epochs: int, seed: int, batch: int = 256) -> nn.Module:
    """Train with AdamW, crops and flips, and a rate that rises and falls once."""
    device = next(model.parameters()).device
    inputs, targets = inputs.to(device), targets.to(device)
    generator = torch.Generator().manual_seed(seed)
    steps = epochs * (len(inputs) // batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, steps, pct_start=0.2)
    model.train()
    for step in range(steps):
        if step % (len(inputs) // batch) == 0:
            order = torch.randperm(len(inputs), generator=generator).to(device)
        chosen, order = order[:batch], order[batch:]
        x, y = crop_and_flip((inputs[chosen], targets[chosen]), generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


if __name__ == "__main__":
    main()

"""What a part of the recipe is worth on images that neither pruning nor the dense network has seen.

    python -m experiments.unseen DENSE.pt --checkpoints FOLDER [--device cuda] --runs 0.9 0.9:learning_rate=0.0014 …

A ResNet20 is trained on 40,000 training images of CIFAR-10 and kept in DENSE.pt; it is taken from there if it is there
already. Each run prunes it with the same 40,000 while training (`gradual`, crops and flips, 240,000 sample gradients),
or with `layerwise`, and is judged on the other 10,000 training images. So a choice can be made that held-out samples
cannot be asked about, because the dense network was trained on them, and without a look at the test images. A run is a
sparsity and settings of `gradual` or its plan. Every finished run is a line of experiments/results/unseen.jsonl. On a
CPU --bfloat16 takes all training steps, the dense network's and those of the runs, in half the time; these runs are
lines of unseen-bfloat16.jsonl, with the accuracy of their dense network.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.versions import versions
from brainsurgeon.network.evaluate import evaluate
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.gradual.loop import Plan
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.layerwise.method import Layerwise
from brainsurgeon.pruning.methods import Method
from brainsurgeon.pruning.prune import prune
from brainsurgeon.samples.augment import crop_and_flip
from experiments.budgets import with_places
from experiments.language import yaml_value
from experiments.records import RESULTS, Record, append, is_done, read_lines, table

SEEN, EPOCHS, BATCH, RATE = 40_000, 60, 128, 0.2
EXACT, ROUNDED = "unseen.jsonl", "unseen-bfloat16.jsonl"
Pairs = tuple[Tensor, Tensor]


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    protocol = PROTOCOLS["resnet20"]
    seen, unseen = _split(load_images(protocol, options.data).train())
    model = load_network(protocol, [options.checkpoints]).to(options.device)
    if options.bfloat16:
        model = in_bfloat16(model)
    if not options.dense.exists():
        train(model, (seen[0].to(options.device), seen[1].to(options.device)), options.epochs)
        torch.save(model.state_dict(), options.dense)
    model.load_state_dict(torch.load(options.dense, weights_only=True, map_location=options.device))
    dense = accuracy(model, unseen)
    print(f"dense, unseen images: {dense:.2f}", flush=True)
    path = options.results / (ROUNDED if options.bfloat16 else EXACT)
    for run in options.runs:
        sparsity, _, rest = run.partition(":")
        given = {
            name: yaml_value(value) for name, _, value in (pair.partition("=") for pair in rest.split(",") if pair)
        }
        key = {"sparsity": float(sparsity), "seed": options.seed, "given": given}
        key |= {"dense": dense} if options.bfloat16 else {}
        if is_done(path, key):
            continue
        common: dict[str, Any] = {"include": protocol.settings.get("include"), "seed": options.seed, "progress": False}
        result = prune(model, seen, float(sparsity), method(dict(given)), **common)
        line: Record = {"accuracy": accuracy(result.model, unseen), "held_out_loss": result.loss_after}
        line |= {"unseen_loss": evaluate(result.model, unseen, loss="cross_entropy")["loss"]}
        line |= {"learning_rate": result.settings.get("learning_rate"), "versions": versions(options.device)}
        append(path, key | line)
        print(f"{run} seed {options.seed}: {line['accuracy']:.2f}, loss {line['unseen_loss']:.4f}", flush=True)


def unseen_table(name: str = EXACT) -> str:
    """Tabulate the mean accuracy of the seeds by settings and sparsity; write_tables writes it."""
    runs = read_lines(RESULTS / name)
    sparsities = sorted({run["sparsity"] for run in runs})
    rows = []
    for given in dict.fromkeys(_words(run["given"]) for run in runs):
        own = [run for run in runs if _words(run["given"]) == given]
        found = [[run["accuracy"] for run in own if run["sparsity"] == sparsity] for sparsity in sparsities]
        rows.append([given, *(f"{mean(each):.2f}" if each else "–" for each in found)])
    return table(["settings", *(f"{sparsity:g}" for sparsity in sparsities)], sorted(rows))


def _words(given: Record) -> str:
    return ", ".join(f"{name}={value:g}" if not isinstance(value, str) else value for name, value in given.items())


def method(given: dict[str, Any]) -> Method:
    """Return the method of a run from its settings."""
    if given.pop("method", "gradual") == "layerwise":
        return Layerwise(**given)
    plan = Plan(**{name: given.pop(name) for name in list(given) if name in Plan.__dataclass_fields__})
    return Gradual("auto", plan=plan, augment=crop_and_flip, **given)


def in_bfloat16(model: nn.Module) -> nn.Module:
    """Let a model pass forward in bfloat16, its weights and its outputs in float32.

    The caller's autocast does not reach pruning, and kept around many steps it would go on with the first weights.
    """

    def forward(self: nn.Module, inputs: Tensor) -> Tensor:
        with torch.autocast(inputs.device.type, torch.bfloat16):
            found: Tensor = kind.forward(self, inputs)
        return found.float()

    kind: Any = type(model)
    model.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return model


def train(model: nn.Module, seen: Pairs, epochs: int = EPOCHS) -> None:
    """Train from scratch: SGD with momentum, a rate that rises over a fifth of the steps and falls to zero."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
        if isinstance(module, nn.BatchNorm2d | nn.Linear):
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            nn.init.ones_(module.weight)
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, weight_decay=5e-4, nesterov=True)
    generator, steps, step = torch.Generator().manual_seed(5), epochs * (SEEN // BATCH), 0
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(SEEN, generator=generator).split(BATCH)[: SEEN // BATCH]:
            share = step / steps
            optimizer.param_groups[0]["lr"] = RATE * (share / 0.2 if share < 0.2 else 1 - (share - 0.2) / 0.8)
            inputs, targets = crop_and_flip(tuple(part[chosen.to(part.device)] for part in seen), generator)
            optimizer.zero_grad()
            cross_entropy(model(inputs.to(memory_format=torch.channels_last)), targets).backward()
            optimizer.step()
            step += 1
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise BrainsurgeonError("the dense network diverged")


def _split(pairs: Pairs) -> tuple[Pairs, Pairs]:
    order = torch.randperm(len(pairs[0]), generator=torch.Generator().manual_seed(123))
    seen, unseen = order[:SEEN], order[SEEN:]
    return (pairs[0][seen], pairs[1][seen]), (pairs[0][unseen], pairs[1][unseen])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dense", type=Path)
    parser.add_argument("--runs", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of the dense network, where it is to be trained")
    parser.add_argument("--bfloat16", action="store_true", help="take training steps in bfloat16 (autocast)")
    return with_places(parser)


if __name__ == "__main__":
    main()

"""What each part of pruning while training is worth: MLPNet on other training images, one part changed at a time.

    python -m experiments.ablation --checkpoints FOLDER

All runs have the same samples and sample gradients, and each finds its learning rate by itself; `magnitude` is the
ordinary baseline of `experiments.budgets`, with the rate that is best for it. A "joint update" softens each of 15 cuts
as CBS-U does: the Fisher matrix of 500 samples, or the layers' Gram matrices of the same, taken at the weights before
the cut, moves the kept weights by half of the update. The gradients of the rows are taken from those of training; the
short runs that look for a rate have plain cuts. Judged on 10,000 training images that were not used. Every finished run
is a line of experiments/results/ablation.jsonl.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from brainsurgeon.engine.budget import Budget
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import evaluated
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.examine import Rows, examine
from brainsurgeon.pruning.gradual.loop import Plan
from brainsurgeon.pruning.gradual.method import Gradual
from brainsurgeon.pruning.gradual.run import GradualRun
from brainsurgeon.pruning.gradual.student import Student
from brainsurgeon.pruning.prune import prune
from experiments.budgets import methods, with_places
from experiments.records import RESULTS, append, command_line, is_done, read_lines, table
from experiments.samples import SPARSITIES, Pairs, apart

CUTS, ROWS, DAMPING = 15, 500, 0.1
"""Cuts that are softened, the gradients taken for each, and the damping relative to the mean curvature."""
PEER_RATE = 0.003
KINDS: dict[str, tuple[int | None, int]] = {"50,000": (None, 240_000), "1,000": (1000, 120_000)}
"""Samples and sample gradients."""
BOTH: dict[str, dict[str, Any]] = {
    "as it is": {},
    "score: magnitude": {"score_power": 0.0},
    "score: Optimal Brain Damage": {"score_power": 1.0},
    "pruned weights never return": {"returning": False},
    "15 cuts": {"cuts": CUTS},
    "cubic, until 60% of the steps": {"power": 3.0, "end": 0.6},
    "SGD": {"optimizer": "sgd"},
    "15 cuts, half the joint update by the Fisher matrix": {"cuts": CUTS, "soft": ("fisher", 0.5)},
    "15 cuts, half the joint update by the Gram matrices": {"cuts": CUTS, "soft": ("gram", 0.5)},
}
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "50,000": {
        "no weight decay": {"weight_decay": 0.0},
        "no distillation": {"distil": 0.0},
        "even draws": {"doubt": 0.0},
    },
    "1,000": {
        "no mixup": {"mix": False, "warp": True},
        "no warp": {"warp": False},
        "labels: no distillation, so no mixup": {"distil": 0.0, "warp": True},
    },
}
"""What is changed with many samples alone, and with few."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    protocol = PROTOCOLS["mlpnet"]
    model = load_network(protocol, [options.checkpoints]).to(options.device)
    own, others = apart(load_images(protocol, options.data).train())
    path = options.results / "ablation.jsonl"
    for seed in options.seeds:
        for kind, part, sparsity in ((k, p, s) for k in KINDS for p in parts(k) for s in SPARSITIES):
            key = {"samples": kind, "part": part, "sparsity": sparsity, "seed": seed}
            if is_done(path, key):
                continue
            method, soft = changed(kind, part)
            data = drawn(own, KINDS[kind][0], seed)
            start = time.process_time()
            with nullcontext() if soft is None else softened(*soft):
                result = prune(model, data, sparsity, method, seed=seed, progress=False)
            line = key | {"cpu_seconds": time.process_time() - start, "accuracy": accuracy(result.model, others)}
            line |= {"held_out_loss": result.loss_after, "learning_rate": result.settings["learning_rate"]}
            append(path, line | {"command": command_line("ablation", arguments or sys.argv[1:])})
            print(line, flush=True)


def parts(kind: str) -> list[str]:
    """Return the names of what is compared, the baseline first."""
    return ["magnitude", *BOTH, *OWN[kind]]


def changed(kind: str, part: str) -> tuple[Gradual, tuple[str, float] | None]:
    """Return the method with one part changed, and how its cuts are softened, if they are."""
    samples, gradients = KINDS[kind]
    if part == "magnitude":
        peer = methods(gradients, samples, False, PEER_RATE, PEER_RATE)["magnitude"]
        assert isinstance(peer, Gradual)
        return replace(peer, max_samples=None), None
    given = dict({**BOTH, **OWN[kind]}[part])
    soft = given.pop("soft", None)
    if soft is not None:
        gradients -= CUTS * ROWS
    plan = replace(Plan(), **{name: given.pop(name) for name in list(given) if name in Plan.__dataclass_fields__})
    return Gradual("auto", plan=plan, max_gradients=gradients, **given), soft


def drawn(pairs: Pairs, samples: int | None, seed: int) -> Pairs:
    """Return so many of the samples, or all of them."""
    chosen = torch.randperm(len(pairs[0]), generator=torch.Generator().manual_seed(seed))[:samples]
    return pairs[0][chosen], pairs[1][chosen]


@contextmanager
def softened(kind: str, scale: float) -> Iterator[None]:
    """Let every cut of a run be followed by a part of the joint update of the weights that it keeps.

    The short runs that look for a learning rate are left as they are.
    """
    plain, train = Student.cut, GradualRun._train
    run: list[GradualRun] = []

    def whole(self: GradualRun, steps: int, rate: float, deadline: float, stored: Any = None) -> Student:
        run[:] = [] if stored is None else [self]
        return train(self, steps, rate, deadline, stored)

    def cut(self: Student, budget: Budget, power: float, returning: bool) -> None:
        if not run:
            plain(self, budget, power, returning)
            return
        self.write(self.model)
        before = {name: mask.clone() for name, mask in self.masks.items()}
        batches = list(run[0].samples.draw(ROWS, 1000 + int(sum(int(mask.sum()) for mask in before.values()))))
        rows = Rows(ROWS, relative=True, may_vanish=True)
        with evaluated(self.model), torch.enable_grad():
            found = examine(kind, BatchLoss(self.model, "cross_entropy"), self.weights, batches, rows)
            values = self.weights.flatten(self.model)
            plain(self, budget, power, returning)
            steps = found.model(values, DAMPING).compensate(_flat(self, self.pruned()))
        for name, step in self.weights.unflatten(steps).items():
            stayed = before[name] * self.masks[name]  # what has come back was not there to be moved
            self.values[name].detach().add_(scale * step.to(stayed) * stayed)

    Student.cut, GradualRun._train = cut, whole  # type: ignore[method-assign]
    try:
        yield
    finally:
        Student.cut, GradualRun._train = plain, train  # type: ignore[method-assign]


def _flat(student: Student, masks: dict[str, Tensor]) -> Tensor:
    return torch.cat([masks[name].reshape(-1) for name in student.weights.names])


def ablation_table() -> str:
    """Tabulate the mean accuracy of the seeds by what was changed, and the seconds; write_tables writes it."""
    runs = read_lines(RESULTS / "ablation.jsonl")
    rows = []
    for kind, part in ((k, p) for k in KINDS for p in parts(k)):
        own = [run for run in runs if (run["samples"], run["part"]) == (kind, part)]
        found = [[run["accuracy"] for run in own if run["sparsity"] == sparsity] for sparsity in SPARSITIES]
        seconds = f"{mean(run['cpu_seconds'] for run in own):.0f}" if own else "–"
        cells = [f"{mean(each):.2f} ({len(each)})" if each else "–" for each in found]
        rows.append([kind, part, *cells, seconds])
    return table(["samples", "what is changed", *(f"{sparsity:g}" for sparsity in SPARSITIES), "seconds"], rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    return with_places(parser)


if __name__ == "__main__":
    main()

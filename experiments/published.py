"""The paper's algorithm on MLPNet: at the counts that its published masks keep, and with one deviation at a time.

    python -m experiments.published --checkpoints FOLDER [--seeds 0 1] [--variants counts] [--data FOLDER]

Every finished run is a line of experiments/results/published-counts.jsonl (larger counts) or
published-deviations.jsonl (exact counts, one deviation), and is not computed again.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from brainsurgeon.engine.selection import Given
from brainsurgeon.engine.update import Joint
from brainsurgeon.files.versions import versions
from brainsurgeon.paper.accuracy import accuracy
from brainsurgeon.paper.datasets.images import ImageData
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network, training_samples
from brainsurgeon.pruning.one_shot import OneShot
from brainsurgeon.pruning.result import PruningResult
from brainsurgeon.pruning.surgery import Surgery
from experiments.records import RESULTS, Record, append, is_done

SIZE = 32_360
KEPT = {0.9: 3_382, 0.95: 1_780, 0.98: 712}
"""The weights that the published masks keep: the published code rounds each bucket's share."""
COUNTS, DEVIATIONS = RESULTS / "published-counts.jsonl", RESULTS / "published-deviations.jsonl"
VARIANTS: dict[str, dict[str, Any]] = {
    "counts": {},
    "screened": {"screen": True},
    "races": {"whole_loss": False},
    "damped": {"selection_damping": None},
    "ordered once": {"reorder": False},
    "all training samples": {"loss_samples": 60_000},
}
"""What is changed in `cbs-s-published`; "counts" changes nothing but the number of weights kept."""


def sparsity_that_keeps(kept: int, size: int) -> float:
    """Return a sparsity r with size − ⌈r·size⌉ = kept, half a weight away from where the ceiling jumps."""
    return (size - kept - 0.5) / size


def runs(surgery: Surgery, variant: str, sparsity: float) -> Iterator[tuple[str, PruningResult]]:
    """Yield CBS-S and CBS as published, with the deviation; at the published counts MP too."""
    at = sparsity_that_keeps(KEPT[sparsity], SIZE) if variant == "counts" else sparsity
    if variant == "counts":
        yield "mp", surgery.prune(at, "mp")
    chosen = surgery.prune(at, "cbs-s-published", **VARIANTS[variant])
    yield "cbs-s-published", chosen
    yield "cbs-published", surgery.prune(at, OneShot(Given(chosen.masks), Joint(), name="cbs-published"))


def record(key: Record, method: str, result: PruningResult, images: ImageData, surgery: Surgery) -> Record:
    """Return the line of a run."""
    return {
        **key,
        "method": method,
        "pruned": result.pruned,
        "kept": result.size - result.pruned,
        "accuracy": accuracy(result.model, images),
        "loss_before": result.loss_before,
        "loss_after": result.loss_after,
        "steps": sum(event.stage == "search" for event in result.trace),
        "seconds": {name: round(value, 4) for name, value in result.seconds.items()},
        "settings": result.settings,
        "notes": list(result.notes),
        "versions": versions(surgery.device),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the runs that are still missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--sparsities", type=float, nargs="+", choices=KEPT, default=list(KEPT))
    parser.add_argument("--data", type=Path, help="the folder that holds mnist")
    parser.add_argument("--checkpoints", type=Path, required=True)
    options = parser.parse_args(arguments)
    protocol = PROTOCOLS["mlpnet"]
    images, model = load_images(protocol, options.data), load_network(protocol, [options.checkpoints])
    for seed in options.seeds:
        surgery = Surgery(
            model, training_samples(protocol, images, seed), seed=seed, progress=False, **protocol.settings
        )
        for variant in options.variants:
            path = COUNTS if variant == "counts" else DEVIATIONS
            for sparsity in options.sparsities:
                key: Record = {"network": "mlpnet", "variant": variant, "sparsity": sparsity, "seed": seed}
                if is_done(path, {**key, "method": "cbs-published"}):
                    continue
                for method, result in runs(surgery, variant, sparsity):
                    line = record(key, method, result, images, surgery)
                    append(path, line)
                    print(*key.values(), method, f"{line['accuracy']:.2f}", flush=True)


if __name__ == "__main__":
    main()

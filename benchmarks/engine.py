"""Speed, memory and growth of the engine, as ratios within one run.

    python benchmarks/engine.py [speed|memory|growth|all] [--checkpoints FOLDER] [--output FILE.json]

With `--checkpoints` (and the data fetched) the trained MLPNet and ResNet20 of the paper are used, else networks of the
same shape with random weights and random data: the gradients cost the same, the searches take other paths.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from brainsurgeon.files.versions import versions
from brainsurgeon.network.gradients import collect_gradients
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import find_weights
from brainsurgeon.paper.models import build
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.samples.batches import regroup


def subject(network: str, checkpoints: Path | None):
    """Return (model, (inputs, targets))."""
    if checkpoints is not None:
        protocol = PROTOCOLS[network]
        data = load_images(protocol)
        inputs, targets = data.normalize(data.train_inputs[:20_000]), data.train_targets[:20_000]
        return load_network(protocol, [checkpoints]), (inputs, targets)
    shape = (1, 28, 28) if network == "mlpnet" else (3, 32, 32)
    generator = torch.Generator().manual_seed(0)
    count = 15_000 if network == "mlpnet" else 4_000
    return build(network).eval(), (
        torch.randn(count, *shape, generator=generator),
        torch.randint(10, (count,), generator=generator),
    )


def best_of(function, times: int = 3) -> float:
    """Return the least of several times, the first (warm-up) left out."""
    function()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def speed(checkpoints: Path | None) -> dict:
    parts = (_gradient_ratio, _after_gradients, _mlpnet, _search_reads)
    return {key: value for part in parts for key, value in part(checkpoints).items()}


def _gradient_ratio(checkpoints: Path | None, count: int = 1000) -> dict:
    """Per-sample gradients of ResNet20 against a plain batched forward and backward pass over the same samples."""
    model, (inputs, targets) = subject("resnet20", checkpoints)
    batches = list(regroup([(inputs[:count], targets[:count])], 64))
    weights = find_weights(model, PROTOCOLS["resnet20"].settings["include"])

    def plain() -> None:
        model.requires_grad_(True)
        for x, y in batches:
            model.zero_grad()
            cross_entropy(model(x), y).backward()

    def rows() -> None:
        model.requires_grad_(False)
        collect_gradients(BatchLoss(model, "cross_entropy"), weights, batches, count)

    a, b = best_of(plain), best_of(rows)
    return {"gradients_over_plain": b / a, "plain_seconds_per_1000": 1000 * a / count}


def _after_gradients(checkpoints: Path | None) -> dict:
    """Everything after the gradients (50 draws, search, update, losses) against the gradients, ResNet20, K = 1,000."""
    model, data = subject("resnet20", checkpoints)
    ratios, of_work = {}, {}
    for _ in range(2):  # the first run warms up
        work = time.process_time()
        surgery = Surgery(model, data, progress=False, **PROTOCOLS["resnet20"].settings)
        work = time.process_time() - work
        collected = surgery.clock.seconds["gradients"]
    for sparsity in (0.5, 0.9):
        start, begun = time.perf_counter(), time.process_time()
        surgery.prune(sparsity, "cbs")
        ratios[str(sparsity)] = (time.perf_counter() - start) / collected
        of_work[str(sparsity)] = (time.process_time() - begun) / work
    return {
        "after_over_gradients": ratios,
        "after_over_gradients_in_cpu_seconds": of_work,  # less at the mercy of what else the machine does
        "gradients_seconds_resnet20": collected,
    }


def _mlpnet(checkpoints: Path | None) -> dict:
    """The whole of cbs on MLPNet at one sparsity with K = 10,000, in seconds."""
    model, data = subject("mlpnet", checkpoints)
    found = {}
    for sparsity in (0.5, 0.7, 0.9, 0.98):
        start = time.perf_counter()
        Surgery(model, data, progress=False, **PROTOCOLS["mlpnet"].settings).prune(sparsity, "cbs")
        found[str(sparsity)] = time.perf_counter() - start
    return {"mlpnet_cbs_seconds": found}


def _search_reads(checkpoints: Path | None) -> dict:
    """One step of each search on MLPNet with K = 4,000, in streaming reads of the gradients."""
    from brainsurgeon.engine.selection import LocalSearch, Magnitude, WideSearch

    model, data = subject("mlpnet", checkpoints)
    settings = {**PROTOCOLS["mlpnet"].settings, "num_gradients": 4000}
    surgery = Surgery(model, data, progress=False, **settings)
    quadratic = surgery.quadratic
    vector = torch.ones(quadratic.size)
    read = best_of(lambda: vector @ quadratic.curvatures[0].columns, 5)
    reads = {}
    for name, search in (("algorithm1", LocalSearch()), ("wide", WideSearch())):
        problem = _problem(surgery)
        pruned = Magnitude()(problem)
        pressure = quadratic.pressure(pruned)
        _ = quadratic.self_impact

        def step(search=search, problem=problem, pruned=pruned, pressure=pressure) -> None:
            swaps = search.step(problem, pruned, pressure)
            moved = torch.zeros_like(pressure)
            moved[[j for _, j in swaps]] = 1.0
            quadratic.product(moved)

        reads[name] = best_of(step) / read
    return {"reads_per_search_step": reads, "read_gb_per_second": quadratic.size * 4000 * 4 / read / 1e9}


def _problem(surgery: Surgery):
    from brainsurgeon.engine.budget import make_budget
    from brainsurgeon.engine.problem import Problem

    layers = [(layer.name, layer.offset, layer.size) for layer in surgery.weights.layers]
    budget = make_budget("global", 0.9, layers, surgery.device)
    return Problem(surgery.values, budget, torch.Generator().manual_seed(0), surgery.quadratic)


def memory(checkpoints: Path | None) -> dict:
    """Peak memory of a whole run in a process of its own, against the bytes of the gradients."""
    cases = [
        (network, sparsity, dtype)
        for network in ("resnet20", "mlpnet")
        for sparsity in (0.5, 0.9)
        for dtype in ("float32", "bfloat16")
    ]
    found = {}
    for network, sparsity, dtype in cases:
        command = [sys.executable, __file__, "peak", network, str(sparsity), dtype]
        command += ["--checkpoints", str(checkpoints)] if checkpoints else []
        printed = subprocess.run(command, check=True, capture_output=True).stdout
        found[f"{network} {sparsity} {dtype}"] = json.loads(printed)
    return {"memory": found}


def high_water() -> int:
    """Return the most memory this process has held so far, in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def peak(network: str, sparsity: float, dtype: str, checkpoints: Path | None) -> dict:
    model, data = subject(network, checkpoints)
    before = high_water()
    surgery = Surgery(model, data, progress=False, dtype=getattr(torch, dtype), **PROTOCOLS[network].settings)
    surgery.prune(sparsity, "cbs")
    top = high_water()
    gradients = surgery.quadratic.size * surgery.settings.num_gradients * getattr(torch, dtype).itemsize
    # The process with Python, torch, the model and the data, before the run, is not ours to shrink.
    return {
        "gradients_mb": gradients / 1e6,
        "start_mb": before / 1e6,
        "peak_over_start_mb": (top - before) / 1e6,
        "within_bound": top - before <= 1.3 * gradients + 500e6,
    }


def growth(checkpoints: Path | None) -> dict:
    """Exponents of time in N and K of a product, of the screening and of the update, by fits on a log scale."""
    from brainsurgeon.engine.curvature import Fisher
    from brainsurgeon.engine.quadratic import QuadraticModel

    def seconds(size: int, rows: int) -> dict[str, float]:
        generator = torch.Generator().manual_seed(0)
        columns = torch.randn(size, rows, generator=generator)
        quadratic = QuadraticModel(torch.randn(size, generator=generator), [slice(0, size)], [Fisher(columns, 1e-3)])
        pruned = torch.rand(size, generator=generator) < 0.9
        return {
            "product": best_of(lambda: quadratic.product(quadratic.w)),
            "costs of 50 masks": best_of(lambda: quadratic.costs([pruned] * 50)),
            "update": best_of(lambda: quadratic._compensate(pruned), 2),
        }

    sizes = {n: seconds(n, 500) for n in (100_000, 200_000, 400_000, 800_000)}
    rows = {k: seconds(200_000, k) for k in (250, 500, 1000, 2000)}
    return {"growth": {"exponent in N": _exponents(sizes), "exponent in K": _exponents(rows)}}


def _exponents(times: dict[int, dict[str, float]]) -> dict[str, float]:
    xs = [math.log(x) for x in times]
    mean_x = sum(xs) / len(xs)
    found = {}
    for key in next(iter(times.values())):
        ys = [math.log(entry[key]) for entry in times.values()]
        mean_y = sum(ys) / len(ys)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
        found[key] = slope / sum((x - mean_x) ** 2 for x in xs)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "memory", "growth", "all", "peak"], nargs="?", default="all")
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.what == "peak":
        network, sparsity, dtype = options.arguments
        print(json.dumps(peak(network, float(sparsity), dtype, options.checkpoints)))
        return
    parts = {"speed": speed, "memory": memory, "growth": growth}
    found: dict = {"versions": versions("cpu"), "trained": options.checkpoints is not None}
    for name, part in parts.items():
        if options.what in (name, "all"):
            found.update(part(options.checkpoints))
    text = json.dumps(found, indent=2)
    print(text)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()

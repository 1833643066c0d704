"""How fast the engine is: gradients, everything after them, and single steps of the searches."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from brainsurgeon.engine.budget import make_budget
from brainsurgeon.engine.curvature import Fisher
from brainsurgeon.engine.problem import Problem
from brainsurgeon.engine.quadratic import QuadraticModel
from brainsurgeon.engine.selection import LocalSearch, Magnitude, WideSearch
from brainsurgeon.network.gradients import collect_gradients
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import find_weights
from brainsurgeon.paper.models import build
from brainsurgeon.paper.reproduce.protocol import PROTOCOLS, load_images, load_network
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.samples.batches import regroup
from experiments.networks import curvature_of, examined

Subject = tuple[nn.Module, tuple[Tensor, Tensor]]


def subject(network: str, checkpoints: Path | None) -> Subject:
    """Return a network and samples: those of the paper, or random ones of the same shape."""
    if checkpoints is not None:
        protocol = PROTOCOLS[network]
        data = load_images(protocol)
        inputs, targets = data.normalize(data.train_inputs[:20_000]), data.train_targets[:20_000]
        return load_network(protocol, [checkpoints]), (inputs, targets)
    shape = (1, 28, 28) if network == "mlpnet" else (3, 32, 32)
    generator = torch.Generator().manual_seed(0)
    count = 15_000 if network == "mlpnet" else 4_000
    inputs = torch.randn(count, *shape, generator=generator)
    return build(network).eval(), (inputs, torch.randint(10, (count,), generator=generator))


def surgery_of(network: str, checkpoints: Path | None, **changes: Any) -> Surgery:
    """Return the subject on the table, with the settings of the paper's tables."""
    model, data = subject(network, checkpoints)
    return Surgery(model, data, progress=False, **{**PROTOCOLS[network].settings, **changes})


def best_of(function: Callable[[], object], times: int = 3) -> float:
    """Return the least of several times, the first (warm-up) left out."""
    function()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def speed(checkpoints: Path | None) -> dict[str, Any]:
    """Return all measures of speed."""
    parts = (_gradient_ratio, _after_gradients, _mlpnet, _search_reads)
    return {key: value for part in parts for key, value in part(checkpoints).items()}


def _gradient_ratio(checkpoints: Path | None, count: int = 1000) -> dict[str, Any]:
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


def _after_gradients(checkpoints: Path | None) -> dict[str, Any]:
    """Everything after the gradients (50 draws, search, update, losses) against the gradients, ResNet20, K = 1,000."""
    ratios, of_work = {}, {}
    for _ in range(2):  # the first run warms up
        surgery = surgery_of("resnet20", checkpoints)
        work = time.process_time()
        collected = examined(surgery).seconds["gradients"]
        work = time.process_time() - work
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


def _mlpnet(checkpoints: Path | None) -> dict[str, Any]:
    """Time the whole of cbs on MLPNet at one sparsity with K = 10,000."""
    found = {}
    for sparsity in (0.5, 0.7, 0.9, 0.98):
        model, data = subject("mlpnet", checkpoints)
        start = time.perf_counter()
        Surgery(model, data, progress=False, **PROTOCOLS["mlpnet"].settings).prune(sparsity, "cbs")
        found[str(sparsity)] = time.perf_counter() - start
    return {"mlpnet_cbs_seconds": found}


def _search_reads(checkpoints: Path | None) -> dict[str, Any]:
    """One step of each search on MLPNet with K = 4,000, in streaming reads of the gradients."""
    surgery = surgery_of("mlpnet", checkpoints, num_gradients=4000)
    quadratic = curvature_of(surgery)
    fisher = quadratic.curvatures[0]
    assert isinstance(fisher, Fisher)
    vector = torch.ones(quadratic.size)
    read = best_of(lambda: vector @ fisher.columns, 5)
    layers = [(layer.name, layer.offset, layer.size) for layer in surgery.weights.layers]
    budget = make_budget("global", 0.9, layers, surgery.device)
    problem = Problem(surgery.values, budget, torch.Generator().manual_seed(0), quadratic)
    reads = {
        name: best_of(_stepper(search, problem, quadratic)) / read
        for name, search in (("algorithm1", LocalSearch()), ("wide", WideSearch()))
    }
    return {"reads_per_search_step": reads, "read_gb_per_second": quadratic.size * 4000 * 4 / read / 1e9}


def _stepper(search: LocalSearch | WideSearch, problem: Problem, quadratic: QuadraticModel) -> Callable[[], None]:
    pruned = Magnitude()(problem)
    pressure = quadratic.pressure(pruned)
    _ = quadratic.self_impact

    def step() -> None:
        swaps = search.step(problem, pruned, pressure)
        moved = torch.zeros_like(pressure)
        moved[[j for _, j in swaps]] = 1.0
        quadratic.product(moved)

    return step

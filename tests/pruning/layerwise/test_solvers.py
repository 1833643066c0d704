"""One layer pruned in each of the ways: exact counts, and against dense solutions in float64."""

from itertools import combinations

import pytest
import torch
from layer_cases import dense_fit, layer_case, row_error
from torch import Tensor

from brainsurgeon.engine.layer.patterns import Pattern, parse_pattern
from brainsurgeon.engine.layer.solve import LayerProblem
from brainsurgeon.engine.selection import Magnitude, WoodFisher
from brainsurgeon.engine.update import Independent, Joint, Keep
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.layerwise.solvers import Admm, LayerSolver, Scored, Selected, SparseGPT

SOLVERS: dict[str, LayerSolver] = {
    "admm": Admm(),
    "wanda": Scored("wanda"),
    "magnitude": Scored("magnitude"),
    "wanda, refit": Scored("wanda", refit=True),
    "sparsegpt": SparseGPT(),
    "sparsegpt, refit": SparseGPT(refit=True),
    "selected": Selected(WoodFisher(), Joint()),
}
PATTERNS = ["unstructured", "row", "2:4", "1:4", "4x4", "1x4 row"]
scaled = pytest.mark.parametrize("scaled", [False, True])


def problem_of(
    pattern: str = "unstructured", seed: int = 0, scaled: bool = False, sparsity: float = 0.5
) -> LayerProblem:
    weights, moments = layer_case(8, 16, seed)
    drawn = torch.rand(8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    shape = parse_pattern(pattern)
    if shape.keep_of is not None:
        sparsity = 1 - shape.keep_of[0] / shape.keep_of[1]
    count = shape.count(sparsity, weights.shape)
    return LayerProblem(weights, moments, count, shape, drawn.exp() if scaled else None)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", SOLVERS)
@scaled
def test_every_solver_is_exact_in_every_pattern_and_tells_its_true_error(name: str, pattern: str, scaled: bool) -> None:
    problem = problem_of(pattern, scaled=scaled)
    if name == "selected" and pattern != "unstructured":
        with pytest.raises(BrainsurgeonError, match="knows no patterns"):
            SOLVERS[name](problem)
        return
    before = problem.weights.clone()
    found = SOLVERS[name](problem)
    assert problem.pattern.feasible(found.pruned, problem.count)
    assert (found.weights[found.pruned] == 0).all()
    errors = row_error(found.weights, problem.weights, problem.moments)
    if problem.scales is not None:
        errors = errors * problem.scales
    assert found.error == pytest.approx(float(errors.sum()), rel=1e-9)
    assert torch.equal(problem.weights, before)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("seed", range(3))
def test_admm_with_swaps_is_better_than_the_baselines(pattern: str, seed: int) -> None:
    """In blocks, of which so small a layer has few, than the baselines as published; else than their refits too."""
    errors = {name: SOLVERS[name](problem_of(pattern, seed)).error for name in SOLVERS if name != "selected"}
    rivals = ["wanda", "magnitude", "sparsegpt", *([] if "x" in pattern else ["wanda, refit", "sparsegpt, refit"])]
    assert errors["admm"] <= min(errors[name] for name in rivals)
    assert errors["sparsegpt"] < errors["magnitude"]
    assert errors["wanda, refit"] < errors["wanda"]
    assert errors["sparsegpt, refit"] <= errors["sparsegpt"] * (1 + 1e-3)


@pytest.mark.parametrize("name", ["wanda, refit", "sparsegpt, refit", "admm"])
def test_a_refit_is_the_least_squares_solution_on_its_mask(name: str) -> None:
    problem = problem_of()
    found = SOLVERS[name](problem)
    best = row_error(dense_fit(problem.weights, problem.moments, found.pruned), problem.weights, problem.moments)
    assert found.error == pytest.approx(float(best.sum()), rel=1e-3)


@scaled
def test_woodfisher_and_the_joint_update_on_a_layer_are_those_of_its_dense_hessian(scaled: bool) -> None:
    """H is block-diagonal, c_o A for each row: scores w²/2[H⁻¹]_ii, and the kept weights by least squares."""
    problem = problem_of(scaled=scaled)
    found = Selected(WoodFisher(), Joint())(problem)
    scales = torch.ones(8, dtype=torch.float64) if problem.scales is None else problem.scales
    hessian = torch.block_diag(*(scale * problem.moments for scale in scales))
    scores = problem.weights.reshape(-1).square() / (2 * torch.linalg.inv(hessian).diagonal())
    expected = torch.zeros(scores.shape, dtype=torch.bool)
    expected[scores.argsort()[: problem.count]] = True
    assert torch.equal(found.pruned.reshape(-1), expected)
    assert torch.allclose(found.weights, dense_fit(problem.weights, problem.moments, found.pruned), atol=1e-6)


def test_magnitude_and_no_update_are_the_weights_as_they_were() -> None:
    problem = problem_of()
    found, other = Selected(Magnitude(), Keep())(problem), Scored("magnitude")(problem)
    assert torch.equal(found.pruned, other.pruned)
    assert torch.equal(found.weights, other.weights)
    assert torch.equal(found.weights, problem.weights.masked_fill(found.pruned, 0.0))


def test_selected_takes_groups_of_rows_with_moments_of_their_own() -> None:
    cases = [layer_case(3, 6, seed) for seed in range(2)]
    weights, moments = (torch.stack(each) for each in zip(*cases, strict=True))
    found = Selected(Magnitude(), Joint())(LayerProblem(weights, moments, 12))
    assert int(found.pruned.sum()) == 12
    for group in range(2):
        best = dense_fit(weights[group], moments[group], found.pruned[group])
        assert torch.allclose(found.weights[group], best, atol=1e-6)


def test_the_independent_update_is_worse_than_the_joint_one() -> None:
    problem = problem_of()
    assert Selected(WoodFisher(), Joint())(problem).error < Selected(WoodFisher(), Independent())(problem).error


def best_error(weights: Tensor, moments: Tensor, count: int) -> float:
    """Every mask of a tiny layer."""
    rows, inputs = weights.shape
    errors = []
    for places in combinations(range(rows * inputs), count):
        pruned = torch.zeros(rows * inputs, dtype=torch.bool)
        pruned[list(places)] = True
        pruned = pruned.view(rows, inputs)
        errors.append(float(row_error(dense_fit(weights, moments, pruned), weights, moments).sum()))
    return min(errors)


@pytest.mark.parametrize("seed", range(4))
def test_on_a_tiny_layer_admm_comes_near_the_best_of_all_masks(seed: int) -> None:
    weights, moments = layer_case(2, 5, seed)
    found = Admm()(LayerProblem(weights, moments, 5, Pattern()))
    assert found.error <= 1.3 * best_error(weights, moments, 5) + 1e-12


@pytest.mark.parametrize("bad", ["obs", "", None])
def test_an_unknown_score_is_refused(bad: str) -> None:
    with pytest.raises(BrainsurgeonError, match='"wanda" or "magnitude"'):
        Scored(bad)

"""One examination of the loss: its mean gradient, and curvatures that cover every weight once, in order."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import reference
import torch
from cases import CASES, SAMPLES, Case, every_case, seeded
from torch import Tensor, nn
from toys import Conv1D

from brainsurgeon.engine.curvature import Fisher, Gram, Reordered
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.gradients import collect_gradients
from brainsurgeon.network.inputs import SCARCITY
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import PrunableWeights, find_weights
from brainsurgeon.pruning.examine import CURVATURES, Examination, Rows, examine

every_kind = pytest.mark.parametrize("kind", CURVATURES)


def prepare(case: Case) -> tuple[BatchLoss, PrunableWeights, Any]:
    model = case.model().eval()
    return BatchLoss(model, case.loss), find_weights(model), [case.data()]


def examined(case: Case, kind: str, blocks: str | int = "auto", rows: int = SAMPLES, group: int = 1) -> Examination:
    return examine(kind, *prepare(case), Rows(rows, group, blocks, 8, relative=True))


def rows_of(case: Case, rows: int = SAMPLES, group: int = 1) -> Tensor:
    """G, K×N in float64."""
    return collect_gradients(*prepare(case), rows, group).columns.double().T


@every_case
@every_kind
@pytest.mark.parametrize("blocks", ["auto", "layer", "model", 5])
def test_every_weight_lies_in_one_block_in_order(case: Case, kind: str, blocks: str | int) -> None:
    _, weights, _ = prepare(case)
    found = examined(case, kind, blocks)
    model = found.model(torch.randn(weights.size, generator=torch.Generator().manual_seed(0)), 0.1)
    assert found.blocks[0].start == 0
    assert found.blocks[-1].stop == weights.size
    assert all(one.stop == other.start for one, other in pairwise(found.blocks))
    assert [curvature.size for curvature in model.curvatures] == [b.stop - b.start for b in found.blocks]
    assert bool((model.self_impact > 0).all())
    assert bool(torch.isfinite(model.inverse_diagonal).all())


@every_case
@every_kind
@pytest.mark.parametrize(("rows", "group"), [(SAMPLES, 1), (8, 5)])
def test_the_gradient_is_the_mean_of_the_rows(case: Case, kind: str, rows: int, group: int) -> None:
    found = examined(case, kind, rows=rows, group=group)
    expected = rows_of(case, rows, group).mean(0)
    assert found.gradient().dtype == torch.float64
    torch.testing.assert_close(found.gradient(), expected, rtol=10 * case.tolerance, atol=case.tolerance / 10)


def test_a_fisher_is_that_of_the_rows_with_a_damping_relative_to_their_mean_square() -> None:
    case = CASES["linear"]
    G = rows_of(case).numpy()
    found = examined(case, "fisher", "model").model(torch.ones(G.shape[1]), 0.5)
    assert isinstance(found.curvatures[0], Fisher)
    x = torch.linspace(-1, 1, G.shape[1], dtype=torch.float64)
    H = reference.fisher(G, 0.5 * np.mean(G**2))
    np.testing.assert_allclose(found.product(x), H @ x.numpy(), rtol=1e-4, atol=1e-7)


def test_the_damping_of_all_blocks_of_a_fisher_is_the_same() -> None:
    curvatures = examined(CASES["linear"], "fisher", "layer").curvatures(0.5)
    assert len({curvature.damping for curvature in curvatures}) == 1  # type: ignore[attr-defined]


def test_a_gram_curvature_has_the_moments_of_the_inputs_and_half_the_trace_of_the_fisher() -> None:
    """Each row: half its own mean square of gradients, half the layer's, for each unit of its inputs' mean square."""
    case = CASES["linear"]
    x = case.data()[0].double()
    squares = rows_of(case).square().mean(0)[:48].view(8, 6)
    (first, second) = examined(case, "gram").curvatures(0.5)
    assert isinstance(first, Gram)
    assert isinstance(second, Gram)
    A = x.T @ x / SAMPLES
    torch.testing.assert_close(first.moments[0], A, rtol=1e-5, atol=1e-6)
    own = squares.sum(1) / A.trace()
    torch.testing.assert_close(first.scales, (own + own.mean()) / 2, rtol=1e-4, atol=1e-9)
    assert first.damping == pytest.approx(0.5 * (1 + SCARCITY * 6 / SAMPLES))


def test_a_map_with_its_inputs_first_has_the_curvature_of_its_transpose() -> None:
    """Two layers with the same weights, stored either way, see the same change of the loss for the same step."""
    plain, turned = seeded(lambda: nn.Linear(4, 3), 0), seeded(lambda: Conv1D(3, 4), 0)
    with torch.no_grad():
        turned.weight.copy_(plain.weight.T)
        turned.bias.copy_(plain.bias)
    data = seeded(lambda: (torch.randn(30, 4), torch.randint(3, (30,))), 1)
    found = []
    for model in (plain, turned):
        parts = BatchLoss(model, "cross_entropy"), find_weights(model), [data]
        found.append(examine("gram", *parts, Rows(30)).curvatures(0.1)[0])
    assert isinstance(found[0], Gram)
    assert isinstance(found[1], Reordered)
    step = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
    straight = found[0].product(step.reshape(-1)).view(3, 4)
    torch.testing.assert_close(found[1].product(step.T.reshape(-1)).view(4, 3), straight.T, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("embedding", "0.weight"),
        ("lstm", "cell.weight_ih_l0, cell.weight_hh_l0"),
        ("transposed_linear", "0.weight, 2.weight"),
        ("tied", "embedding.weight"),
        ("attention", "attention.in_proj_weight, attention.out_proj.weight"),
    ],
)
def test_layers_that_are_no_plain_linear_map_have_the_fishers_curvature_and_a_note(name: str, others: str) -> None:
    case = CASES[name]
    found = examined(case, "gram", "layer")
    assert f"no plain linear map, so its curvature is the Fisher's: {others}" in found.notes
    G, (_, weights, _) = rows_of(case), prepare(case)
    curvatures = dict(zip(weights.names, found.curvatures(1e-6), strict=True))
    for layer in weights.layers:
        fallen_back = layer.name in others.split(", ")
        assert isinstance(curvatures[layer.name], Fisher) == fallen_back
        if fallen_back:
            expected = G[:, layer.columns].square().mean(0)
            torch.testing.assert_close(curvatures[layer.name].diagonal(), expected, rtol=1e-3, atol=1e-5)


def test_an_unknown_curvature_is_refused() -> None:
    with pytest.raises(BrainsurgeonError, match="curvature must be one of fisher, gram or auto, got 'hessian'"):
        examined(CASES["linear"], "hessian")


@pytest.mark.parametrize("blocks", ["auto", "layer", "model", 5])
def test_layers_of_other_kinds_may_lie_between_plain_ones(blocks: str | int) -> None:
    """Linear, recurrent, linear, recurrent, linear: each curvature sits at the place of its own weights."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.RNN(4, 5, batch_first=True)
            self.c, self.d, self.e = nn.Linear(5, 2), nn.RNN(2, 3, batch_first=True), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.e(self.d(self.c(self.b(self.a(x))[0]))[0][:, -1])

    case = Case("mixed", Mixed, lambda: (torch.randn(SAMPLES, 4, 3), torch.randint(3, (SAMPLES,))))
    (_, weights, _), found = prepare(case), examined(case, "gram", blocks)
    curvatures = found.curvatures(1e-6)
    assert [block.start for block in found.blocks] == [0, *(block.stop for block in found.blocks[:-1])]
    expected = rows_of(case).square().mean(0)
    for block, curvature in zip(found.blocks, curvatures, strict=True):
        owner = next(layer for layer in weights.layers if layer.offset <= block.start < layer.columns.stop)
        assert isinstance(curvature, Fisher) == (owner.name[0] in "bd")
        if isinstance(curvature, Fisher):
            torch.testing.assert_close(curvature.diagonal(), expected[block], rtol=1e-3, atol=1e-5)


def test_a_damping_that_is_not_relative_is_the_damping() -> None:
    G = rows_of(CASES["linear"]).numpy()
    found = examine("fisher", *prepare(CASES["linear"]), Rows(SAMPLES, blocks="model")).model(torch.ones(72), 0.5)
    x = torch.linspace(-1, 1, 72, dtype=torch.float64)
    np.testing.assert_allclose(found.product(x), reference.fisher(G, 0.5) @ x.numpy(), rtol=1e-4, atol=1e-7)


@every_kind
@pytest.mark.parametrize(("rows", "group"), [(SAMPLES, 1), (8, 5), (1000, 1)])
def test_the_rows_that_were_taken_are_told(kind: str, rows: int, group: int) -> None:
    assert examined(CASES["linear"], kind, rows=rows, group=group).rows == min(rows, SAMPLES // group)

"""Moments of what goes into a layer: ‖ΔW X‖² over samples is tr(ΔW A ΔWᵀ), for every kind of linear map."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import CASES, SAMPLES, Case, every_case, every_device, seeded
from torch import Tensor, nn
from toys import Conv1D

from brainsurgeon.network.inputs import Moments, collect_cross_moments, collect_moments
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import find_weights
from brainsurgeon.samples.batches import cut

Make = Callable[[], nn.Module]
MODULES: dict[str, tuple[Make, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "linear over positions": (lambda: nn.Linear(4, 3), (5, 4)),
    "linear over a grid": (lambda: nn.Linear(4, 3), (2, 3, 4)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3), (2, 7)),
    "conv1d of one position": (lambda: nn.Conv1d(2, 3, 1), (2, 7)),
    "conv2d": (lambda: nn.Conv2d(2, 3, (3, 2)), (2, 5, 6)),
    "conv3d": (lambda: nn.Conv3d(2, 2, (2, 3, 1), padding=(0, 1, 2), stride=(1, 2, 1)), (2, 3, 4, 3)),
    "stride": (lambda: nn.Conv2d(2, 3, 3, stride=(2, 3)), (2, 8, 9)),
    "padding": (lambda: nn.Conv2d(2, 3, 3, padding=(2, 1)), (2, 5, 5)),
    "padding same": (lambda: nn.Conv2d(2, 3, (3, 4), padding="same", dilation=(1, 2)), (2, 7, 8)),
    "padding valid": (lambda: nn.Conv2d(2, 3, 3, padding="valid"), (2, 5, 5)),
    "reflect": (lambda: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="reflect"), (2, 5, 5)),
    "circular": (lambda: nn.Conv1d(2, 3, 3, padding=2, padding_mode="circular"), (2, 6)),
    "replicate": (lambda: nn.Conv3d(1, 2, 2, padding=1, padding_mode="replicate"), (1, 3, 3, 3)),
    "dilation": (lambda: nn.Conv2d(2, 3, 3, dilation=(2, 1), stride=2), (2, 8, 8)),
    "groups": (lambda: nn.Conv2d(4, 6, 2, groups=2, bias=False), (4, 4, 4)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), (4, 4, 4)),
    "depthwise with two outputs each": (lambda: nn.Conv1d(3, 6, 2, groups=3), (3, 6)),
}
every_module = pytest.mark.parametrize("name", MODULES)


def output_loss(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


def build(name: str) -> tuple[nn.Module, Tensor]:
    make, shape = MODULES[name]
    return seeded(make, 0).double(), seeded(lambda: torch.randn(9, *shape), 1).double()


def moments_of(model: nn.Module, batches: Any, loss: Any = output_loss) -> dict[str, Moments]:
    return collect_moments(BatchLoss(model, loss), find_weights(model), batches)


def energy(moments: Moments, change: Tensor) -> Tensor:
    """tr(ΔW A ΔWᵀ), each row with the moments of its group."""
    groups, inputs, _ = moments.matrix.shape
    rows = (change.T if moments.transposed else change).reshape(groups, -1, inputs)
    return torch.einsum("goi,gij,goj->", rows, moments.matrix, rows)


def squared_output(module: nn.Module, change: Tensor, x: Tensor) -> Tensor:
    """‖ΔW X‖² over samples, by the module itself."""
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.get_parameter("weight").copy_(change)
        if other.bias is not None:
            other.get_parameter("bias").zero_()
        return other(x).square().sum() / len(x)


@every_module
def test_the_moments_say_how_far_any_change_moves_the_outputs(name: str) -> None:
    module, x = build(name)
    found = moments_of(module, [x[:4], x[4:]])["weight"]
    assert found.matrix.dtype == torch.float64
    assert not found.transposed
    generator = torch.Generator().manual_seed(2)
    for _ in range(4):
        change = torch.randn(module.get_parameter("weight").shape, generator=generator, dtype=torch.float64)
        torch.testing.assert_close(energy(found, change), squared_output(module, change, x), rtol=1e-10, atol=0)
    one = torch.zeros_like(change)  # a single output row: each has the moments of its own group
    one[-1] = change[-1]
    torch.testing.assert_close(energy(found, one), squared_output(module, one, x), rtol=1e-10, atol=0)


@every_module
def test_columns_are_the_samples_times_the_positions(name: str) -> None:
    module, x = build(name)
    y = module(x)
    channels = y.shape[-1] if isinstance(module, nn.Linear) else y.shape[1]
    assert moments_of(module, [x])["weight"].columns == y.numel() // channels


def test_the_moments_of_a_linear_layer_are_the_mean_of_its_outer_products() -> None:
    module, x = build("linear")
    expected = torch.stack([torch.outer(row, row) for row in x]).mean(0)
    found = moments_of(module, [x])["weight"]
    torch.testing.assert_close(found.matrix, expected.unsqueeze(0))
    assert found.columns == len(x)


def test_a_map_with_its_inputs_first_says_so() -> None:
    module = seeded(lambda: Conv1D(5, 3), 0).double()
    x = seeded(lambda: torch.randn(9, 2, 3), 1).double()
    found = moments_of(module, [x])["weight"]
    assert found.transposed
    change = seeded(lambda: torch.randn(3, 5), 2).double()
    torch.testing.assert_close(energy(found, change), squared_output(module, change, x))


def test_hugging_faces_own_module_is_known() -> None:
    utils = pytest.importorskip("transformers.pytorch_utils", reason="needs transformers")
    module = utils.Conv1D(5, 3)
    found = moments_of(module, [torch.randn(9, 3, generator=torch.Generator().manual_seed(0))])["weight"]
    assert found.transposed
    assert found.matrix.shape == (1, 3, 3)


def test_a_module_that_is_called_twice_has_the_inputs_of_both_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(torch.tanh(self.layer(x)))

    model = seeded(Twice, 0).double()
    x = seeded(lambda: torch.randn(9, 3), 1).double()
    inner = torch.tanh(model.layer(x)).detach()
    found = moments_of(model, [x])["layer.weight"]
    torch.testing.assert_close(found.matrix[0], (x.T @ x + inner.T @ inner) / 9)
    assert found.columns == 18


def test_a_layer_called_by_keyword_is_seen_too() -> None:
    class ByName(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(input=x)

    x = torch.eye(3)
    torch.testing.assert_close(moments_of(ByName(), [x])["layer.weight"].matrix[0].float(), x / 3)


PLAIN = {
    "linear": {"0.weight", "2.weight"},
    "regression": {"0.weight", "2.weight"},
    "conv1d": {"0.weight", "3.weight"},
    "conv2d": {"0.weight", "3.weight"},
    "conv3d": {"0.weight", "3.weight"},
    "transposed_conv": {"3.weight"},
    "grouped_conv": {"0.weight", "3.weight"},
    "depthwise_conv": {"0.weight", "3.weight"},
    "embedding": {"2.weight"},
    "attention": {"head.weight"},
    "transposed_linear": set(),
    "lstm": {"head.weight"},
    "gru": {"head.weight"},
    "tied": {"mix.weight"},
    "batch_norm_dropout": {"0.weight", "5.weight"},
    "several_inputs": {"left.weight", "right.weight", "head.weight"},
    "dict_batch": {"0.weight", "2.weight"},
    "branching": {"one.weight", "other.weight"},
    "float64": {"0.weight", "2.weight"},
    "bfloat16": {"0.weight", "2.weight"},
}


@every_case
def test_layers_of_other_kinds_are_left_out(case: Case) -> None:
    halves = [cut(case.data(), slice(17)), cut(case.data(), slice(17, None))]
    found = moments_of(case.model().eval(), halves, case.loss)
    assert found.keys() == PLAIN[case.name]
    for moments in found.values():
        assert bool(torch.isfinite(moments.matrix).all())
        torch.testing.assert_close(moments.matrix, moments.matrix.mT)


def test_half_precision_is_summed_in_full() -> None:
    """Rounded to 8 bits the moments would not be positive definite at the dampings that stages come to."""
    model = CASES["bfloat16"].model().eval()
    x = seeded(lambda: torch.randn(SAMPLES, 6), 1).bfloat16()
    found = moments_of(model, [x])["0.weight"]
    torch.testing.assert_close(found.matrix[0], x.double().T @ x.double() / SAMPLES, rtol=1e-5, atol=1e-6)


def test_the_model_is_left_as_it_was() -> None:
    case = CASES["batch_norm_dropout"]
    model = case.model().eval()
    before = copy.deepcopy(model.state_dict())
    moments_of(model, [case.data()], case.loss)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())
    with pytest.raises(ZeroDivisionError):
        moments_of(model, [case.data()], lambda output, target: 1 / 0)
    assert not any(module._forward_pre_hooks for module in model.modules())


@every_device
def test_moments_lie_where_the_model_lies(device: str) -> None:
    module, x = build("groups")
    found = moments_of(module.to(device), [x.to(device)])["weight"]
    assert found.matrix.device.type == device
    torch.testing.assert_close(found.matrix.cpu(), moments_of(module.cpu(), [x])["weight"].matrix)


def test_a_constant_input_gives_means_and_some_columns_stand_for_all() -> None:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3 * 36, 2))
    x = torch.randn(40, 2, 8, 8, generator=generator) + 1.0
    loss, batches = BatchLoss(model.eval(), "mse"), [(x, torch.zeros(40, 2))]
    weights = find_weights(model, "0.weight")
    whole = collect_moments(loss, weights, batches)["0.weight"]
    more = collect_moments(loss, weights, batches, constant=True)["0.weight"]
    torch.testing.assert_close(more.matrix[:, :-1, :-1], whole.matrix)
    assert more.matrix[0, -1, -1] == 36  # of one sample, as many columns as positions
    patches = nn.functional.unfold(x, 3)
    torch.testing.assert_close(more.matrix[0, -1, :-1] / 36, patches.mean((0, 2)).double(), rtol=1e-4, atol=1e-4)
    some = collect_moments(loss, weights, batches, constant=True, most=1000)["0.weight"]
    assert some.columns == 1000
    torch.testing.assert_close(some.matrix / some.matrix[0, -1, -1], more.matrix / 36, rtol=0.3, atol=0.1)
    cross = collect_cross_moments(loss, loss, weights.layers[0], batches, constant=True, most=1000)
    torch.testing.assert_close(cross.cross, cross.matrix)
    torch.testing.assert_close(cross.matrix, some.matrix)

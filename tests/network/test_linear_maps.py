"""Linear layers and convolutions as rows of weights: there and back, and rows times inputs are the outputs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from networks import maps_of
from torch import Tensor, nn
from toys import Conv1D

import brainsurgeon
from brainsurgeon.network.linear_maps import LinearMap, linear_maps

KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (partial(nn.Linear, 5, 3), (2, 5)),
    "linear of sequences": (partial(nn.Linear, 5, 3), (2, 4, 5)),
    "inputs first": (partial(Conv1D, 3, 5), (2, 4, 5)),
    "conv1d": (partial(nn.Conv1d, 4, 6, 3, padding=1, dilation=2), (2, 4, 7)),
    "conv2d": (partial(nn.Conv2d, 4, 6, (2, 3), stride=2), (2, 4, 5, 6)),
    "conv3d": (partial(nn.Conv3d, 2, 3, 2), (2, 2, 3, 3, 3)),
    "grouped": (partial(nn.Conv2d, 4, 6, 3, groups=2, padding=1), (2, 4, 5, 5)),
    "depthwise": (partial(nn.Conv2d, 4, 4, 3, groups=4), (2, 4, 5, 5)),
    "depthwise, two rows each": (partial(nn.Conv1d, 3, 6, 2, groups=3), (2, 3, 5)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def map_of(kind: str) -> tuple[LinearMap, Tensor]:
    torch.manual_seed(0)
    build, shape = KINDS[kind]
    model = nn.Sequential(build())
    return maps_of(model)[0], torch.randn(shape)


@every_kind
def test_rows_and_stored_are_the_inverse_of_one_another(kind: str) -> None:
    layer, _ = map_of(kind)
    weight = layer.weight.detach()
    rows = layer.rows(weight)
    assert rows.dim() == 3
    assert rows.shape[0] == layer.groups
    back = layer.stored(rows)
    assert back.shape == weight.shape
    assert back.is_contiguous()
    assert torch.equal(back, weight)
    drawn = torch.randn_like(rows)
    assert torch.equal(layer.rows(layer.stored(drawn)), drawn)


@every_kind
def test_rows_times_inputs_are_the_outputs(kind: str) -> None:
    """groups × rows × inputs times groups × inputs × positions: what the layer gives, without its bias."""
    layer, x = map_of(kind)
    layer.module.bias.data.zero_()
    product = layer.rows(layer.weight.detach()) @ layer.read((x,), {})
    axis = 1 if isinstance(layer.module, nn.Conv1d | nn.Conv2d | nn.Conv3d) else x.dim() - 1
    expected = layer.module(x).detach().movedim(axis, 0).flatten(1)
    assert torch.allclose(product.flatten(0, 1), expected, atol=1e-5)


@every_kind
def test_an_input_may_come_by_name(kind: str) -> None:
    layer, x = map_of(kind)
    assert torch.equal(layer.read((x,), {}), layer.read((), {"input": x}))


def test_other_kinds_of_layers_are_no_linear_maps() -> None:
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(4, 3),
            "lstm": nn.LSTM(3, 2),
            "attention": nn.MultiheadAttention(4, 2),
            "back": nn.ConvTranspose2d(2, 3, 2),
            "linear": nn.Linear(3, 3),
        }
    )
    names = [name for name, parameter in model.named_parameters() if parameter.dim() > 1]
    assert [layer.name for layer in linear_maps(model, names)] == ["linear.weight"]


class Causal(nn.Conv1d):
    """Sees what was before alone, by a padding of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        return super().forward(nn.functional.pad(x, ((self.kernel_size[0] - 1) * self.dilation[0], 0)))


class Plain(nn.Conv1d):
    """Is PyTorch's own under another name."""


def test_a_convolution_of_its_own_kind_is_no_plain_map() -> None:
    model = nn.Sequential(
        Causal(4, 8, 3, dilation=4), nn.ReLU(), Plain(8, 8, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3)
    )
    assert [layer.name for layer in linear_maps(model, ["0.weight", "2.weight", "5.weight"])] == [
        "2.weight",
        "5.weight",
    ]
    data = torch.randn(100, 4, 6), torch.arange(100) % 3
    for method in ("layerwise", "wanda", "auto"):
        settings = {"max_gradients": 1000} if method == "auto" else {}
        assert brainsurgeon.prune(model, data, 0.5, method, progress=False, **settings).pruned == 156


def test_a_map_of_half_precision_is_read_in_float32() -> None:
    layer, x = map_of("linear")
    layer.module.bfloat16()
    assert layer.read((x.bfloat16(),), {}).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
def test_masks_and_other_types_go_the_same_way(dtype: torch.dtype) -> None:
    layer, _ = map_of("inputs first")
    values: Any = (torch.rand(layer.weight.shape) > 0.5).to(dtype)
    assert torch.equal(layer.rows(values)[0], values.T)
    assert layer.stored(layer.rows(values)).dtype == dtype

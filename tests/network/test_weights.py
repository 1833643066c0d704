"""Which tensors are found, under which name, and what becomes of them."""

import pytest
import torch
from cases import CASES, Case, Tied, every_case
from torch import nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.network.weights import find_weights


class Mixed(nn.Module):
    """Layers of several types, a normalisation layer and a bare parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3)
        self.norm = nn.LayerNorm([2, 2])
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.head = nn.Linear(4, 2)
        self.bare = nn.Parameter(torch.zeros(3, 3))


@every_case
def test_the_weights_of_every_kind_of_module_are_found(case: Case) -> None:
    """Biases and normalisation layers are left alone, and a shared tensor counts once."""
    assert find_weights(case.model()).names == case.prunable


@every_case
def test_what_is_flattened_is_assigned_back_unchanged(case: Case) -> None:
    model = case.model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weights = find_weights(model)
    flat = weights.flatten(model)
    assert flat.shape == (weights.size,)
    weights.assign(model, torch.zeros_like(flat))
    assert not weights.flatten(model).any()
    weights.assign(model, flat)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_unflattened_views_lie_where_the_layers_say() -> None:
    weights = find_weights(CASES["conv2d"].model())
    views = weights.unflatten(torch.arange(weights.size))
    for layer in weights.layers:
        assert views[layer.name].shape == layer.shape
        assert views[layer.name].flatten()[0] == layer.offset


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (None, None, ["stem.weight", "blocks.0.weight", "blocks.1.weight", "head.weight"]),
        ("head", None, ["head.weight"]),
        ("head.weight", None, ["head.weight"]),
        ("blocks.*", None, ["blocks.0.weight", "blocks.1.weight"]),
        ("blocks", None, ["blocks.0.weight", "blocks.1.weight"]),
        (nn.Linear, None, ["blocks.0.weight", "blocks.1.weight", "head.weight"]),
        ([nn.Conv2d, "head"], None, ["stem.weight", "head.weight"]),
        (None, "head", ["stem.weight", "blocks.0.weight", "blocks.1.weight"]),
        (None, [nn.Linear], ["stem.weight"]),
        (nn.Linear, "blocks.1", ["blocks.0.weight", "head.weight"]),
        ("bare", None, ["bare"]),
        (["head", "head.bias"], None, ["head.weight", "head.bias"]),
        ("*.bias", None, ["stem.bias", "norm.bias", "blocks.0.bias", "blocks.1.bias", "head.bias"]),
        ("head*", None, ["head.weight"]),
        ("norm.weight", None, ["norm.weight"]),
    ],
)
def test_names_patterns_and_types_choose_the_layers(include: object, exclude: object, expected: list[str]) -> None:
    found = find_weights(Mixed(), include, exclude)  # type: ignore[arg-type]
    assert list(found.names) == expected


def test_frozen_parameters_are_passed_over_unless_named() -> None:
    model = Mixed()
    model.head.requires_grad_(False)
    assert "head.weight" not in find_weights(model).names
    assert "head.weight" not in find_weights(model, include=nn.Linear).names
    assert "head.weight" not in find_weights(model, include=["head", "blocks"]).names
    assert find_weights(model, include="head.weight").names == ("head.weight",)
    assert "head.weight" in find_weights(model, include="*.weight").names
    assert "head.weight" not in find_weights(model, include="*.weight", exclude="head").names


class Adapted(nn.Module):
    """A frozen base with an adapter of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = nn.Linear(4, 4).requires_grad_(False)
        self.lora_a, self.lora_b = nn.Linear(4, 1, bias=False), nn.Linear(1, 4, bias=False)


def test_the_frozen_base_of_an_adapter_is_pruned_where_it_is_named() -> None:
    assert find_weights(Adapted()).names == ("lora_a.weight", "lora_b.weight")
    assert find_weights(Adapted(), include="*base_layer.weight").names == ("base_layer.weight",)


@pytest.mark.parametrize(
    ("model", "include", "exclude", "words"),
    [
        (Adapted(), "base_layer", None, r"include gives is frozen \(1 weights.*name them in include, as 'base_layer.w"),
        (Adapted(), None, "lora*", r"1 weights are frozen and only lora_a.weight, lora_b.weight can be trained"),
        (Mixed().requires_grad_(False), None, None, r"all weights are frozen.*'stem.weight' or '\*.weight' do, or unf"),
        (Mixed(), None, "*", r"exclude='\*'; the model has"),
    ],
)
def test_what_leaves_nothing_to_prune_is_said(model: nn.Module, include: str, exclude: str, words: str) -> None:
    with pytest.raises(BrainsurgeonError, match=words):
        find_weights(model, include, exclude)


class Bare(nn.Module):
    """Parameters of its own, by all kinds of names, beside a layer."""

    def __init__(self, layer: bool = True) -> None:
        super().__init__()
        if layer:
            self.weights = nn.Linear(6, 8)
            self.own_weight, self.weight_of_mine = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3, 3))
        self.mix, self.a_weighted_sum = nn.Parameter(torch.ones(8, 3)), nn.Parameter(torch.ones(3, 3))
        self.scale = nn.Parameter(torch.ones(3))


def test_bare_parameters_are_pruned_where_they_are_called_weight_or_named() -> None:
    expected = {"weights.weight", "own_weight", "weight_of_mine"}
    assert set(find_weights(Bare()).names) == expected
    assert find_weights(Bare(), include="mix").names == ("mix",)
    assert find_weights(Bare(), include=["mix", "weights"]).names == ("mix", "weights.weight")
    assert find_weights(Bare(), include="scale").names == ("scale",)
    assert set(find_weights(Bare(), include="*").names) == expected | {"mix", "a_weighted_sum"}


def test_a_model_of_bare_parameters_says_how_to_name_them() -> None:
    words = r"no name begins or ends with 'weight'; .* include=\['mix', 'a_weighted_sum'\]; the model has: mix, a_w"
    with pytest.raises(BrainsurgeonError, match=words):
        find_weights(Bare(layer=False))
    assert find_weights(Bare(layer=False), include=["mix", "a_weighted_sum"]).size == 8 * 3 + 3 * 3
    with pytest.raises(BrainsurgeonError, match=r"pattern 'mixed' matches no parameter; the model has: .*mix"):
        find_weights(Bare(), include="mixed")


@pytest.mark.parametrize("name", ["embedding.weight", "out.weight"])
def test_a_shared_tensor_is_left_alone_if_any_of_its_names_is_excluded(name: str) -> None:
    assert find_weights(Tied(), exclude=name).names == ("mix.weight",)


def test_a_shared_tensor_can_be_included_by_its_second_name() -> None:
    found = find_weights(Tied(), include="out")
    assert found.size == Tied().embedding.weight.numel()


def test_a_float64_model_keeps_its_precision() -> None:
    model = CASES["float64"].model()
    assert find_weights(model).flatten(model).dtype == torch.float64

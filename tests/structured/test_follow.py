"""Which units each operation leaves, joins or ties down: small networks around it, and the groups that must come out.

Every group that is found was removed on trial, and the smaller network gave what the large one gives without it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import structures as s
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.pruning.surgery import Surgery
from brainsurgeon.structured.prepare import Prepared, prepare


class Around(nn.Module):
    """Two layers around an operation; what else it needs is given by name."""

    def __init__(self, first: nn.Module, between: Callable[..., Tensor], last: nn.Module, **others: nn.Module) -> None:
        super().__init__()
        self.first, self.last, self.others, self.between = first, last, nn.ModuleDict(others), between

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x), **self.others))


def found(model: nn.Module, data: tuple[Tensor, Tensor]) -> Prepared:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for tensor in model.parameters():
            nn.init.normal_(tensor)
    return prepare(Surgery(model.double().eval(), data, "mse", progress=False), 20, 1)


def wide(channels: int = 8) -> nn.Module:
    return nn.Conv2d(3, channels, 3, padding=1)


def targets(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    return inputs, torch.zeros_like(outputs)


IMAGES = {
    "instance norm": (Around(wide(), lambda x, n: n(x), nn.Conv2d(8, 3, 1), n=nn.InstanceNorm2d(8, affine=True)), 8),
    "group norm": (Around(wide(), lambda x, n: n(x), nn.Conv2d(8, 3, 1), n=nn.GroupNorm(4, 8)), 4),
    "prelu": (Around(wide(), lambda x, p: p(x), nn.Conv2d(8, 3, 1), p=nn.PReLU(8)), 8),
    "gates of channels": (
        Around(
            wide(),
            lambda x, g: x * torch.sigmoid(g(x.mean((2, 3), keepdim=True))),
            nn.Conv2d(8, 3, 1),
            g=nn.Conv2d(8, 8, 1),
        ),
        8,
    ),
    "pixel shuffle": (Around(wide(), lambda x: F.pixel_shuffle(x, 2), nn.Conv2d(2, 3, 1)), 2),
    "flattened": (Around(wide(), lambda x: F.max_pool2d(x, 4).flatten(1), nn.Linear(32, 3)), 8),
    "a grouped convolution": (Around(wide(), lambda x, g: g(x), nn.Conv2d(4, 3, 1), g=nn.Conv2d(8, 4, 1, groups=4)), 4),
    "upsampled": (Around(wide(), lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), nn.Conv2d(8, 3, 1)), 8),
    "made by a transposed convolution": (
        Around(nn.ConvTranspose2d(3, 8, 2, stride=2), lambda x: x.relu(), nn.Conv2d(8, 3, 1)),
        8,
    ),
    "one scale for all": (Around(wide(), lambda x, b: x * b.weight, nn.Conv2d(8, 3, 1), b=nn.PReLU(1)), 8),
    "half gates half": (Around(wide(), lambda x: F.glu(x, 1), nn.Conv2d(4, 3, 1)), 4),
    "halves gated by hand": (
        Around(wide(), lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1].sigmoid(), nn.Conv2d(4, 3, 1)),
        4,
    ),
}


@pytest.mark.parametrize("name", IMAGES)
def test_units_pass_through(name: str) -> None:
    model, units = IMAGES[name]
    inputs = s.images(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    assert [(group.name, group.units) for group in prepared.groups] == [("first", units)]


TIED_DOWN = {
    "layer norm": (Around(wide(), lambda x: F.layer_norm(x, x.shape[1:]), nn.Conv2d(8, 3, 1)), "as a whole"),
    "softmax": (Around(wide(), lambda x: x.softmax(1), nn.Conv2d(8, 3, 1)), "as a whole"),
    "a sum over units": (Around(wide(), lambda x: x + x.mean(1, keepdim=True), nn.Conv2d(8, 3, 1)), "as a whole"),
    "a constant of its width": (
        Around(wide(), lambda x: x + torch.arange(8, dtype=x.dtype).view(8, 1, 1), nn.Conv2d(8, 3, 1)),
        "belong to no unit",
    ),
    "halves that change places": (
        Around(wide(), lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), nn.Conv2d(8, 3, 1)),
        "gives other outputs",
    ),
    "an unknown operation": (Around(wide(), lambda x: torch.cdist(x, x), nn.Conv2d(8, 3, 1)), "cannot be followed"),
    "read by a transposed convolution": (
        Around(wide(), lambda x: x, nn.ConvTranspose2d(8, 3, 2)),
        "no linear layer or convolution",
    ),
    "weights that are computed": (
        Around(wide(), lambda x, w: F.conv2d(x, w.weight.tanh()), nn.Conv2d(3, 3, 1), w=nn.Conv2d(8, 3, 1)),
        "weights that are computed",
    ),
}


@pytest.mark.parametrize("name", TIED_DOWN)
def test_units_that_cannot_go_are_named_with_the_reason(name: str) -> None:
    model, reason = TIED_DOWN[name]
    inputs = s.images(20)[0]
    with pytest.raises(BrainsurgeonError, match=rf"no unit to remove: .*first\.weight: .*{reason}"):
        found(model, targets(inputs, model.double()(inputs)))


def test_a_product_along_another_axis_passes_units_on() -> None:
    """As in mixers: a linear layer over positions leaves the channels to go by themselves."""
    model = Around(
        nn.Linear(6, 8), lambda x, t: t(x.transpose(1, 2)).transpose(1, 2), nn.Linear(8, 3), t=nn.Linear(5, 4)
    )
    inputs = s.sequences(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    assert [(group.name, group.units) for group in prepared.groups] == [("first", 8)]
    assert "along an axis that holds no units" in prepared.left["others.t.weight"]


def test_a_layer_that_is_called_twice_loses_the_same_units_each_time() -> None:
    model = Around(nn.Linear(6, 8), lambda x, m: m(m(x).relu()), nn.Linear(8, 3), m=nn.Linear(8, 8))
    inputs = s.vectors(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    assert [(group.name, group.units, group.writers) for group in prepared.groups] == [
        ("first", 8, ("first.weight", "others.m.weight"))
    ]


def test_joined_branches_keep_their_own_units() -> None:
    model = Around(
        nn.Linear(6, 8),
        lambda x, a, b: torch.cat([a(x), b(x)], 1),
        nn.Linear(9, 3),
        a=nn.Linear(8, 4),
        b=nn.Linear(8, 5),
    )
    inputs = s.vectors(20)[0]
    prepared = found(model, targets(inputs, model.double()(inputs)))
    assert {group.name: group.units for group in prepared.groups} == {"first": 8, "others.a": 4, "others.b": 5}


def test_an_embedding_loses_entries_of_its_rows() -> None:
    model = Around(nn.Embedding(10, 8), lambda x: x.mean(1), nn.Linear(8, 3))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokens = torch.randint(10, (20, 5))
    with pytest.raises(BrainsurgeonError, match="no unit to remove"):  # no linear layer makes these units
        prepare(Surgery(model.double().eval(), (tokens, torch.zeros(20, 3).double()), "mse", progress=False), 20, 1)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_language_models_lose_heads_and_hidden_units(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    common = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}
    if kind == "llama":
        sizes = {"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 4}
        config = transformers.LlamaConfig(**common, **sizes, num_key_value_heads=2)
        model, expected = transformers.LlamaForCausalLM(config), {"self_attn.q_proj": 2, "mlp.gate_proj": 12}
    else:
        config = transformers.GPT2Config(**common, n_embd=16, n_layer=1, n_head=4, n_positions=16, n_inner=12)
        model, expected = transformers.GPT2LMHeadModel(config), {"attn.c_attn": 4, "mlp.c_fc": 12}
    tokens = torch.randint(50, (12, 8), generator=torch.Generator().manual_seed(0))
    prepared = prepare(Surgery(model.eval(), tokens, "next_token", progress=False), 12, 1)
    assert {".".join(g.name.split(".")[-2:]): g.units for g in prepared.groups} == expected
    attributes = {name for numbers in prepared.numbers for _, name in numbers}
    assert attributes == (set() if kind == "llama" else {"split_size"})

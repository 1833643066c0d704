"""Networks whose forward passes fall into parts, or do not: one table, with the chain that each has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from cases import seeded
from torch import Tensor, nn

from brainsurgeon.network.linear_maps import LinearMap, linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.partition import Chain, find_chain
from brainsurgeon.network.streaming import Stream
from brainsurgeon.network.weights import find_weights
from brainsurgeon.samples.batches import cut

SAMPLES, BATCH = 10, 4
VOCABULARY, LENGTH = 23, 6


class Block(nn.Module):
    """x + f(x); with `writes` the sum is written into what the block is given."""

    def __init__(self, width: int = 6, writes: bool = False):
        super().__init__()
        self.up, self.down, self.writes = nn.Linear(width, 8), nn.Linear(8, width), writes

    def forward(self, x: Tensor) -> Tensor:
        change = self.down(torch.relu(self.up(x)))
        return x.add_(change) if self.writes else x + change


class Residual(nn.Module):
    """Blocks between a stem and a head, with functions on both sides of them."""

    def __init__(self, writes: bool = False):
        super().__init__()
        self.head = nn.Linear(6, 3)  # before the stem, as a user may have it
        self.stem = nn.Linear(5, 6)
        self.blocks = nn.ModuleList(Block(writes=writes) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(torch.tanh(x))


class Functions(nn.Module):
    """Layers with functions in between: no module is given what another gives."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.three(torch.tanh(self.two(torch.tanh(self.one(x)))))


class InPlaceFunctions(Functions):
    """The same, with functions that write into the tensors they are given."""

    def forward(self, x: Tensor) -> Tensor:
        return self.three(self.two(self.one(x).tanh_()).tanh_())


class Shared(nn.Module):
    """A block that is called twice, among others."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.twice, self.last, self.head = nn.Linear(5, 6), Block(), Block(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.last(self.twice(self.twice(self.stem(x)))))


class Mixing(nn.Module):
    """A linear map of x, plus something that another module has made."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        return torch.tanh(self.linear(x)) + other


class Looking(nn.Module):
    """Blocks that are given what an earlier block gave."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = Mixing(), Mixing(), Mixing()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = self.one(x, x)
        second = self.two(first, first)
        return self.head(self.three(second, first).sin())


class Skipping(nn.Module):
    """What the first block gives is added behind the last, where no module shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three, self.head = Block(), Block(), Block(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = self.one(x)
        return self.head(self.three(self.two(first)) + 3 * first.sin())


class Biased(nn.Module):
    """A block that makes what the later ones are given beside their hidden state, and gives both."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        bias = x.cos() if bias is None else bias
        return self.linear(x) + bias, bias


class Passing(nn.Module):
    """The second output of the first block goes into all others, as relative positions do in some encoders."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Biased() for _ in range(4))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        bias = None
        for block in self.blocks:
            x, bias = block(x, bias=bias)
        return self.head(x.tanh())


class Masked(nn.Module):
    """Blocks that are given one of two masks in turn, by name, as the kinds of attention of some models are."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Mixing() for _ in range(4))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        masks = x.sign(), x.cos()
        for number, block in enumerate(self.blocks):
            x = block(x=x, other=masks[number % 2])
        return self.head(x.tanh())


class Encoder(nn.Module):
    """PyTorch's own transformer encoder between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


def sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))


def convolutional() -> nn.Module:
    """Convolutions of every kind, with activations in place."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.SiLU(inplace=True),
        nn.Conv2d(4, 4, 2, groups=2),
        nn.SiLU(inplace=True),
        nn.Conv2d(4, 4, 2, groups=4, stride=3),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def llama() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16,
    )
    return transformers.LlamaForCausalLM(config)


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=8, n_layer=2, n_head=2, n_positions=16)
    )


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
        num_labels=3,
    )
    return transformers.BertForSequenceClassification(config)


def labelled(*shape: int) -> Callable[[], Any]:
    return lambda: (torch.randn(SAMPLES, *shape), torch.randint(3, (SAMPLES,)))


def tokens() -> Tensor:
    return torch.randint(VOCABULARY, (SAMPLES, LENGTH))


def labelled_tokens() -> tuple[Tensor, Tensor]:
    return tokens(), torch.randint(3, (SAMPLES,))


def own_labels() -> dict[str, Tensor]:
    """Tokens of which the last are padding, and labels: what a model that has its own loss is given."""
    mask = (torch.arange(LENGTH) < torch.randint(2, LENGTH + 1, (SAMPLES, 1))).long()
    return {"input_ids": tokens(), "attention_mask": mask, "labels": torch.randint(3, (SAMPLES,))}


def own_tokens() -> dict[str, Tensor]:
    drawn = tokens()
    return {"input_ids": drawn, "labels": drawn}


@dataclass(frozen=True)
class Network:
    """A kind of network, its data and loss, and the chain that is to be found; `parts` is False where it misleads."""

    name: str
    build: Callable[[], nn.Module]
    make_data: Callable[[], Any]
    chain: tuple[str, ...]
    loss: Any = "cross_entropy"
    parts: bool = True

    def model(self) -> nn.Module:
        return seeded(self.build, 0).eval()

    def data(self) -> Any:
        return seeded(self.make_data, 1)

    def batches(self) -> list[Any]:
        data = self.data()
        return [cut(data, slice(start, start + BATCH)) for start in range(0, SAMPLES, BATCH)]


def names(prefix: str, count: int, first: int = 0) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(first, count))


NETWORKS = [
    Network("sequential", sequential, labelled(5), names("", 5)),
    Network("convolutional", convolutional, labelled(2, 5, 5), names("", 8)),
    Network("residual", Residual, labelled(5), names("blocks.", 3)),
    Network("writing", lambda: Residual(writes=True), labelled(5), names("blocks.", 3)),
    Network("functions", Functions, labelled(5), ()),
    Network("in-place functions", InPlaceFunctions, labelled(5), ()),
    Network("shared", Shared, labelled(5), ("last", "head")),
    Network("looking", Looking, labelled(6), ("two", "three")),
    Network("skipping", Skipping, labelled(6), ("one", "two", "three"), parts=False),
    Network("passing", Passing, labelled(6), names("blocks.", 4, 1)),
    Network("masked", Masked, labelled(6), names("blocks.", 4)),
    Network("encoder", Encoder, labelled_tokens, names("encoder.layers.", 2)),
    Network("llama", llama, tokens, names("model.layers.", 3), "next_token"),
    Network("llama with a cache", llama, own_tokens, names("model.layers.", 3), "model"),
    Network("gpt2", gpt2, tokens, names("transformer.h.", 2), "next_token"),
    Network("bert", bert, own_labels, (*names("bert.encoder.layer.", 2), "bert.pooler", "classifier"), "model"),
]
every_network = pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
in_parts = [network for network in NETWORKS if network.parts]
every_parted_network = pytest.mark.parametrize("network", in_parts, ids=lambda network: network.name)
BY_NAME = {network.name: network for network in NETWORKS}


def maps_of(model: nn.Module) -> list[LinearMap]:
    return linear_maps(model, find_weights(model).names)


def chain_of(model: nn.Module, loss: BatchLoss, layers: Sequence[LinearMap], batch: Any) -> Chain:
    return find_chain(model, lambda: loss(batch), [layer.name for layer in layers])


def stream_of(network: Network, model: nn.Module, batches: list[Any] | None = None) -> Stream:
    """The calibration batches of a network before its first part."""
    loss, layers = BatchLoss(model, network.loss), maps_of(model)
    batches = network.batches() if batches is None else batches
    chain = chain_of(model, loss, layers, batches[0])
    return Stream(model, loss, batches, layers, chain, torch.device("cpu"))

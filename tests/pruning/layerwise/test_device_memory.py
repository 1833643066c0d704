"""What lives on the device in a layer-wise run: a block, its moments and a batch; never the model, nor all scores."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon.network import places, token_loss
from brainsurgeon.pruning.surgery import Surgery
from experiments.layer_memory import Meter, allowance
from experiments.live_bytes import PRETENDED, LiveBytes

WINDOW = 64


class Block(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.layers(self.norm(x.cumsum(1))))


class Speaker(nn.Module):
    """A language model of many blocks, or of many words; its head is tied to its embedding."""

    def __init__(self, vocabulary: int, width: int, blocks: int, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        self.blocks = nn.ModuleList(Block(width, layers) for _ in range(blocks))

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def tokens_of(vocabulary: int, count: int = 8, window: int = WINDOW) -> Tensor:
    return torch.randint(vocabulary, (count, window), generator=torch.Generator().manual_seed(1))


def peak_of(model: nn.Module, tokens: Tensor, method: str, budget: str) -> tuple[int, int]:
    """Return the peak of a run on the pretended device, and what the largest block, its moments and a batch allow."""
    with LiveBytes() as live:
        meter = Meter(PRETENDED, live)
        allowed = allowance(model, tokens, meter)["allowed_bytes"]
        exclude = ("embedding", "head")
        return meter.peak(
            lambda: brainsurgeon.prune(
                model,
                tokens,
                0.5,
                method,
                "next_token",
                exclude=exclude,
                budget=budget,
                device=PRETENDED,
                progress=False,
            )
        ), allowed


@pytest.mark.parametrize(("method", "budget"), [("layerwise", "global"), ("sparsegpt", "uniform")])
def test_the_scores_of_a_sequence_are_never_there_at_once(
    method: str, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "SCORES_BYTES", 1 << 17)
    monkeypatch.setattr(token_loss, "PIECE_BYTES", 1 << 15)
    vocabulary = 4000
    model = Speaker(vocabulary, 16, blocks=2)
    peak, allowed = peak_of(model, tokens_of(vocabulary), method, budget)
    assert peak <= allowed
    assert peak < 4 * vocabulary * WINDOW  # PyTorch's loss takes five times that on the way back
    assert peak > model.head.weight.nbytes  # what is counted, is counted


def test_the_whole_model_is_never_there_at_once() -> None:
    model = Speaker(50, 48, blocks=16, layers=4)
    peak, _ = peak_of(model, tokens_of(50, window=16), "wanda", "uniform")
    assert peak < sum(parameter.nbytes for parameter in model.parameters()) / 2


def test_the_users_model_keeps_its_memory_and_its_numbers() -> None:
    model = Speaker(50, 16, blocks=2)
    before = {name: (value.data_ptr(), value.clone()) for name, value in model.named_parameters()}
    peak_of(model, tokens_of(50, window=16), "wanda", "uniform")
    for name, value in model.named_parameters():
        assert value.data_ptr() == before[name][0], name
        assert torch.equal(value, before[name][1]), name
        assert value.requires_grad


def test_whole_scores_and_pieces_give_the_same_network(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = Speaker(300, 16, blocks=2).double(), tokens_of(300)

    def pruned() -> brainsurgeon.PruningResult:
        return brainsurgeon.prune(
            model, tokens, 0.5, "layerwise", "next_token", exclude=("embedding", "head"), progress=False
        )

    whole = pruned()
    monkeypatch.setattr(places, "SCORES_BYTES", 1 << 13)
    monkeypatch.setattr(token_loss, "PIECE_BYTES", 1 << 12)
    cut = pruned()
    assert cut.loss_before == pytest.approx(whole.loss_before, rel=1e-6)  # float32 adds in another order
    assert cut.loss_after == pytest.approx(whole.loss_after, rel=1e-6)
    assert all(bool((cut.masks[name] == mask).all()) for name, mask in whole.masks.items())


def test_a_block_at_a_time_is_foretold_for_another_device() -> None:
    model = Speaker(50, 48, blocks=16, layers=4)
    surgery = Surgery(model, tokens_of(50, window=16), "next_token", exclude=("embedding", "head"))
    layerwise, other = (brainsurgeon.pruning.methods.make_method(name) for name in ("layerwise", "mp"))
    whole = surgery.model_bytes
    assert surgery.footprint_of(layerwise).chain.blocks == 16
    assert surgery.resident_bytes(layerwise) == whole
    surgery.device = torch.device("meta")  # any other than where the model is
    block = sum(parameter.nbytes for parameter in model.blocks[0].parameters())
    assert surgery.resident_bytes(layerwise) == max(block, 2 * model.head.weight.nbytes) < whole
    assert surgery.resident_bytes(other) == whole

"""Sequences cut into pieces behind the blocks: the same losses, the same costs; whoever looks around stays whole."""

import pytest
import torch
from torch import Tensor, nn

from brainsurgeon.network import places
from brainsurgeon.network.agreement import parts_agree
from brainsurgeon.network.linear_maps import linear_maps
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.partition import find_chain
from brainsurgeon.network.places import pieces_of, places_at_once
from brainsurgeon.network.streamed_costs import streamed_costs
from brainsurgeon.network.streaming import Stream, streamed_loss

VOCABULARY, WIDTH, LENGTH = 50, 8, 13
CPU = torch.device("cpu")


class Block(nn.Module):
    """A layer, and the mean of what came before each place."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.layer, self.back = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        before = x.cumsum(1) / torch.arange(1, x.shape[1] + 1, dtype=x.dtype).view(-1, 1)
        return x + self.back(torch.tanh(self.layer(before)))


class Speaker(nn.Module):
    """A small language model; with `around` its last norm looks at the whole sequence."""

    def __init__(self, around: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.last, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.around = around

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        x = self.last(x)
        return self.head(x - x.mean(1, keepdim=True) if self.around else x)


def stream_of(model: nn.Module, at_once: int | None) -> Stream:
    tokens = torch.randint(VOCABULARY, (5, LENGTH), generator=torch.Generator().manual_seed(1))
    model.double().eval().requires_grad_(False)
    loss = BatchLoss(model, "next_token")
    names = [name for name, value in model.named_parameters() if value.dim() == 2 and "embedding" not in name]
    chain = find_chain(model, lambda: loss(tokens[:1]), names)
    return Stream(model, loss, list(tokens.split(2)), linear_maps(model, names), chain, CPU, at_once)


@pytest.mark.parametrize("at_once", [1, 5, LENGTH - 2])
def test_losses_and_costs_of_pieces_are_those_of_whole_sequences(at_once: int) -> None:
    whole, cut = (streamed_loss(stream_of(Speaker(), some)) for some in (None, at_once))
    assert cut == pytest.approx(whole, rel=1e-6)  # scores are taken in float32
    (expected, total), (found, again) = (streamed_costs(stream_of(Speaker(), some)) for some in (None, at_once))
    assert again == pytest.approx(total, rel=1e-6)
    assert found.keys() == expected.keys() >= {"head.weight", "last.weight", "blocks.0.layer.weight"}
    for name, costs in found.items():
        torch.testing.assert_close(costs, expected[name], rtol=1e-4, atol=1e-12)


def test_pieces_share_one_place_and_their_shares_add_up() -> None:
    batch = torch.zeros(2, LENGTH, dtype=torch.long)
    pieces = pieces_of(batch, 5)
    assert [piece for piece, _ in pieces] == [slice(0, 6), slice(5, 11), slice(10, 13)]
    assert [share for _, share in pieces] == pytest.approx([5 / 12, 5 / 12, 2 / 12])
    assert pieces_of(batch, None) == [(None, 1.0)]


def test_a_model_that_looks_around_behind_its_blocks_is_told() -> None:
    assert parts_agree(stream_of(Speaker(), 4))
    assert not parts_agree(stream_of(Speaker(around=True), 4))
    assert parts_agree(stream_of(Speaker(around=True), None))


def test_how_many_places_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.zeros(2, LENGTH, dtype=torch.long)
    assert places_at_once("next_token", Speaker(), tokens) is None  # all scores are small
    monkeypatch.setattr(places, "SCORES_BYTES", 3 * 4 * VOCABULARY)
    assert places_at_once("next_token", Speaker(), tokens) == 3
    assert places_at_once("next_token", Speaker(), {"tokens": tokens, "ids": torch.zeros(2, 4)}) is None
    assert places_at_once("cross_entropy", Speaker(), tokens) is None

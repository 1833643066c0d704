"""Bytes of a sample block by block, counted by hand; a network that is no chain says so."""

from __future__ import annotations

import itertools

import pytest
import structures
import torch
from cases import every_device
from torch import Tensor, nn

import brainsurgeon
from brainsurgeon.network import places
from brainsurgeon.network.along_chain import AlongChain, along_chain
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.modes import own_mode
from brainsurgeon.pruning.memory import memory_needs
from brainsurgeon.pruning.methods import make_method


class Block(nn.Module):
    """Keeps its input of the sigmoid, and no more, for the way back: its weights are frozen."""

    def __init__(self, width: int, to: int) -> None:
        super().__init__()
        self.layer, self.back = nn.Linear(width, to), nn.Linear(to, to)

    def forward(self, x: Tensor) -> Tensor:
        return self.back(torch.sigmoid(self.layer(x)))


def measured(model: nn.Module, inputs: Tensor, device: str = "cpu") -> AlongChain:
    """What is found of a model on the CPU whose blocks visit a device."""
    frozen = model.requires_grad_(False)
    names = [name for name, _ in model.named_parameters() if name.endswith("weight")]
    batch = inputs.to(device), torch.zeros(len(inputs)).long().to(device)
    return along_chain(BatchLoss(frozen, "cross_entropy"), batch, names, torch.device(device))


@every_device
@pytest.mark.parametrize("widths", [(6, 6, 6, 6), (6, 6, 24, 24)])
def test_by_hand(widths: tuple[int, ...], device: str) -> None:
    blocks = [Block(a, b) for a, b in itertools.pairwise(widths)]
    model = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(5 * widths[-1], 3))
    found = measured(model, torch.randn(2, 5, 6), device)
    assert found.hidden == 5 * 6 * 4
    assert found.block == 5 * max(widths) * 4, "what the sigmoid gave"
    assert found.blocks >= 3


def test_a_network_without_a_chain_has_nothing_of_it() -> None:
    assert measured(nn.Sequential(nn.Linear(6, 3)), torch.randn(2, 6)) == AlongChain()


def test_a_language_model_is_not_counted_as_a_whole_pass() -> None:
    """Its blocks' activations are there one block at a time, and those of the tail for one sequence."""
    pytest.importorskip("transformers")
    from language_folders import small_model

    tokens = torch.randint(40, (64, 32))
    few, many = (
        brainsurgeon.Surgery(small_model(blocks=blocks), tokens, "next_token", progress=False) for blocks in (2, 12)
    )
    needs = [memory_needs(make_method("layerwise"), s.weights, 0, s.footprint) for s in (few, many)]
    assert many.footprint.passing > 3 * few.footprint.passing
    assert needs[0]["passes"] == needs[1]["passes"] > 0
    assert needs[1]["hidden states"] == max(64 * 32 * 16 * 4, 32 * 12 * 32 * 16 * 4)


class Speaker(nn.Module):
    """A small language model with many scores for each place."""

    def __init__(self, vocabulary: int = 50) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 6)
        self.blocks = nn.ModuleList(Block(6, 6) for _ in range(3))
        self.head = nn.Linear(6, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_the_tail_is_that_of_a_whole_sequence_also_where_pieces_go_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = Speaker().requires_grad_(False), torch.randint(50, (2, 41))
    names = [f"blocks.{number}.layer.weight" for number in range(3)]

    def found() -> AlongChain:
        return along_chain(BatchLoss(model, "next_token"), tokens, names, torch.device("cpu"), "next_token")

    whole = found()
    monkeypatch.setattr(places, "SCORES_BYTES", 10 * 4 * 50)  # ten places of forty at once
    cut = found()
    assert (whole.piece, cut.blocks) == (0, whole.blocks)
    assert cut.piece == pytest.approx(cut.tail / 4, rel=0.01)
    assert cut.tail == pytest.approx(whole.tail, rel=0.1)  # neighbouring pieces share a place
    assert whole.tail >= 40 * 50 * 4


class Entry(nn.Module):
    """Takes tokens, and is one block: both of its layers are given the same."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.left, self.right = nn.Embedding(30, 6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        return self.left(x) + self.right(x)


def test_a_first_block_that_is_given_tokens_keeps_no_gradient_of_them() -> None:
    model = nn.Sequential(Entry(), Block(6, 6), nn.Flatten(), nn.Linear(5 * 6, 3))
    found = measured(model, torch.randint(30, (2, 5)))
    assert (found.hidden, found.failed) == (5 * 8, "")
    assert found.block == 5 * 6 * 4, "what the sigmoid of the second block gave"


def test_a_text_model_is_measured_along_the_chain_of_its_runs() -> None:
    """An embedding is no linear map, and no block of the chain: what it is given is not what goes along the chain."""
    texts = structures.texts()
    result = brainsurgeon.prune(structures.seeded(structures.Padded).float(), texts, 0.5, "layerwise", progress=False)
    assert not any("could not be measured" in note for note in result.notes)
    with own_mode():
        found = measured(structures.seeded(structures.Padded).float(), texts[0][:2])
    assert (found.blocks, found.hidden) == (2, 8 * 16 * 4)

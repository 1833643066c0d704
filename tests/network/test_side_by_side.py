"""Two networks part by part against passes from the start for every layer."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import seeded
from torch import Tensor, nn
from toys import Conv1D

from brainsurgeon.network.inputs import collect_cross_moments, order_of_calls
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.side_by_side import side_by_side
from brainsurgeon.network.weights import PrunableWeights, find_weights
from brainsurgeon.samples.batches import Batch


class Block(nn.Module):
    """Two convolutions, of which the first shares its input with a third, around which the input goes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1, groups=2)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.around = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.around(x))


class Residual(nn.Module):
    """A head, a chain of blocks, and a tail with a layer whose weights lie inputs first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 4, 3, padding=1)
        self.blocks = nn.Sequential(Block(4, 4), Block(4, 6), Block(6, 6))
        self.tail = Conv1D(5, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.blocks(torch.relu(self.head(x))).mean((2, 3)))


class Entangled(nn.Module):
    """No chain: the last layer needs what every other gives."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        first = torch.relu(self.a(x))
        return self.c(torch.cat([first, self.b(first)], 1))


def pair(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> tuple[BatchLoss, BatchLoss, list[Batch]]:
    """Return a network with a third of its weights at zero, the same one dense, and two batches of unequal size."""
    model = seeded(build, 0)
    live = copy.deepcopy(model)
    for name in find_weights(live).names:
        parameter = live.get_parameter(name).data
        parameter[seeded(lambda p=parameter: torch.rand(p.shape), 1) < 1 / 3] = 0.0
    x, y = seeded(lambda: torch.randn(7, *shape), 2), torch.arange(7) % 5
    loss = nn.functional.cross_entropy
    return BatchLoss(live, loss), BatchLoss(model, loss), [(x[:4], y[:4]), (x[4:], y[4:])]


CASES = {"residual": (Residual, (3, 6, 6)), "entangled": (Entangled, (4,))}


@pytest.mark.parametrize("settings", [{}, {"constant": True, "most": 9}], ids=["all columns", "some, and a constant"])
@pytest.mark.parametrize("kind", CASES)
def test_every_layer_has_the_moments_of_passes_from_the_start_through_what_was_changed(
    kind: str, settings: dict[str, Any]
) -> None:
    live, dense, batches = pair(*CASES[kind])
    weights = find_weights(live.model)
    wanted = order_of_calls(live, weights, batches[0])
    plain, trained = copy.deepcopy(live), copy.deepcopy(dense)
    seen = []
    for layer, moments in side_by_side(live, dense, weights, batches, **settings):
        expected = collect_cross_moments(plain, trained, layer, batches, **settings)
        torch.testing.assert_close(moments.matrix, expected.matrix)
        torch.testing.assert_close(moments.cross, expected.cross)
        assert (moments.columns, moments.transposed) == (expected.columns, expected.transposed)
        assert not torch.allclose(moments.matrix, moments.cross) or not seen  # the two networks are not the same
        seen.append(layer)
        for loss in (live, plain):
            loss.model.get_parameter(layer.name).data *= 1.5
    assert torch.is_grad_enabled()  # each network's own passes have ended in the reverse order of their beginning
    assert sorted(seen, key=list(wanted).index) == list(wanted)
    assert len(seen) == len(weights.layers)


def test_no_layer_of_a_chain_takes_a_pass_from_the_start() -> None:
    live, dense, batches = pair(*CASES["residual"])
    counts = dict.fromkeys(("head", "blocks.0.first", "blocks.2.second", "tail"), 0)

    def count(name: str) -> None:
        counts[name] += 1

    for name in counts:
        dense.model.get_submodule(name).register_forward_pre_hook(lambda *_, name=name: count(name))
    for _ in side_by_side(dense, live, find_weights(live.model), batches):
        pass
    # Of the network that was counted: the order of the calls, the chain and its check take five passes at most.
    for name, number in counts.items():
        assert number <= 5 + 7 * len(batches), name
    assert counts["head"] < len(find_weights(live.model).layers) * len(batches)


@pytest.mark.parametrize("after", [1, 3, 11])
def test_a_run_that_is_given_up_leaves_the_networks_as_they_were(after: int) -> None:
    live, dense, batches = pair(*CASES["residual"])
    before = [loss(batches[0]) for loss in (live, dense)]
    layers = side_by_side(live, dense, find_weights(live.model), batches)
    assert len([layer for layer, _ in zip(layers, range(after), strict=False)]) == after
    layers.close()
    assert torch.is_grad_enabled()
    for loss, value in zip((live, dense), before, strict=True):
        assert torch.equal(loss(batches[0]), value)
        assert not any(module._forward_pre_hooks for module in loss.model.modules())
        assert not any("forward" in module.__dict__ for module in loss.model.modules())


def test_without_a_linear_map_there_is_nothing_to_give() -> None:
    live, dense, batches = pair(*CASES["residual"])
    assert list(side_by_side(live, dense, PrunableWeights(()), batches)) == []


@pytest.mark.parametrize("cached", [True, False])
def test_a_language_models_keys_of_one_pass_are_not_in_the_next(cached: bool) -> None:
    pytest.importorskip("transformers")
    from language_folders import small_model

    model = small_model()
    model.config.use_cache = cached
    tokens = seeded(lambda: torch.randint(40, (6, 10)), 0)
    mask = torch.ones_like(tokens)
    mask[::2, :4] = 0
    batches = [{"input_ids": tokens, "labels": tokens, "attention_mask": mask}]
    live, dense = (BatchLoss(copy.deepcopy(model), "model") for _ in range(2))
    plain = BatchLoss(copy.deepcopy(model), "model")
    plain.model.config.use_cache = False
    for layer, moments in side_by_side(live, dense, find_weights(live.model), batches):
        expected = collect_cross_moments(plain, plain, layer, batches)
        torch.testing.assert_close(moments.matrix, expected.matrix)
    assert [loss.model.config.use_cache for loss in (live, dense)] == [cached] * 2

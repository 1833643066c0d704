"""The batches of steps: the same again from any number on, others on every leg, mixed and changed as asked."""

from __future__ import annotations

import pytest
import torch
from cases import seeded
from gradual_cases import data
from torch import Tensor, nn

from brainsurgeon.network.layout import choose_layout
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.pruning.gradual.drawing import Drawing
from brainsurgeon.samples.batches import Batch
from brainsurgeon.samples.held_out import TrainingSamples
from brainsurgeon.samples.views import all_views

SAMPLES = TrainingSamples(data(), 0, torch.device("cpu"))


def noisy(batch: Batch, generator: torch.Generator) -> Batch:
    return batch[0] + torch.rand(batch[0].shape, generator=generator), batch[1]


def drawn(steps: int = 12, start: int = 0, **settings: object) -> list[tuple[Tensor, Tensor]]:
    drawing = Drawing(SAMPLES, 16, **{"seed": 3, **settings})  # type: ignore[arg-type]
    return [batch for _, batch in zip(range(steps - start), drawing.batches(steps, start), strict=False)]


def same(one: list[tuple[Tensor, Tensor]], other: list[tuple[Tensor, Tensor]]) -> bool:
    return all(torch.equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("settings", [{}, {"mixes": True}, {"augment": noisy}], ids=["plain", "mixed", "changed"])
def test_batches_are_whole_and_the_same_again_from_any_step_on(settings: dict[str, object]) -> None:
    """Twelve steps of 16 are more than two epochs of the 80 samples."""
    whole = drawn(**settings)
    assert [len(x) for x, _ in whole] == [16] * 12
    assert same(drawn(start=7, **settings), whole[7:])


@pytest.mark.parametrize("other", [{"leg": 1}, {"mixes": True}, {"augment": noisy}], ids=["leg", "mixed", "changed"])
def test_other_settings_give_other_batches(other: dict[str, object]) -> None:
    assert not same(drawn(**other), drawn())


@pytest.mark.parametrize("settings", [{"mixes": True}, {"augment": noisy}], ids=["mixed", "changed"])
def test_mixing_and_changing_go_by_the_seed(settings: dict[str, object]) -> None:
    assert not same(drawn(**settings, seed=4), drawn(**settings))


def test_every_sample_is_drawn_once_before_any_is_drawn_again() -> None:
    first = torch.cat([x for x, _ in drawn()][:5])
    assert len({tuple(row) for row in first.tolist()}) == SAMPLES.size == 80


def test_images_of_every_view_lie_as_convolutions_take_them_fastest() -> None:
    """On a CPU with their channels last; what is drawn is the same."""
    pictures = seeded(lambda: torch.randn(60, 3, 6, 6), 1), torch.arange(60) % 5
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 5))
    settings = {"seed": 3, "augment": noisy, "views": 2}
    samples = TrainingSamples(pictures, 0, torch.device("cpu"))
    plain = next(Drawing(samples, 8, **settings).batches(2))  # type: ignore[arg-type]
    layout = choose_layout(BatchLoss(model, "cross_entropy"), pictures)
    laid = next(Drawing(samples, 8, **settings, layout=layout).batches(2))  # type: ignore[arg-type]
    for one, other in zip(all_views(laid), all_views(plain), strict=True):
        assert torch.equal(one[0], other[0])
        assert one[0].is_contiguous(memory_format=torch.channels_last)
        assert other[0].is_contiguous()

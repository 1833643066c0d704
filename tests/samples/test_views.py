"""Several views of the same samples, for the dense network alone."""

import pytest
import torch
from torch import Tensor

from brainsurgeon.samples.augment import crop_and_flip
from brainsurgeon.samples.batches import Batch, batch_size, cut
from brainsurgeon.samples.views import Views, all_views, draw_views, keeps_targets, own_view


def noisy(batch: Batch, generator: torch.Generator) -> Batch:
    return (batch[0] + torch.rand(batch[0].shape, generator=generator), batch[1])


def batch_of(size: int = 5) -> tuple[Tensor, Tensor]:
    return torch.arange(3.0 * size).reshape(size, 3), torch.arange(size)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_views_are_draws_of_the_same_samples(count: int) -> None:
    batch = batch_of()
    found = draw_views(batch, noisy, torch.Generator().manual_seed(3), count)
    generator = torch.Generator().manual_seed(3)
    expected = [noisy(batch, generator) for _ in range(count)]
    assert isinstance(found, Views) == (count > 1)
    assert torch.equal(own_view(found)[0], expected[0][0])
    for view, wanted in zip(all_views(found), expected, strict=True):
        assert torch.equal(view[0], wanted[0])
        assert torch.equal(view[1], batch[1])


def test_views_are_a_batch_of_as_many_samples_and_are_cut_like_one() -> None:
    found = draw_views(batch_of(), noisy, torch.Generator().manual_seed(3), 3)
    assert batch_size(found) == 5
    part = cut(found, slice(1, 3))
    assert isinstance(part, Views)
    assert [len(view[0]) for view in all_views(part)] == [2, 2, 2]
    assert torch.equal(part.others[1][0], found.others[1][0][1:3])


def test_an_augment_that_changes_targets_is_noticed() -> None:
    images = (torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(4))
    assert keeps_targets(crop_and_flip, images)
    assert not keeps_targets(lambda batch, _: (batch[0], batch[1].flip(0)), images)
    assert not keeps_targets(lambda batch, _: (*batch, batch[1]), images)
    assert not keeps_targets(lambda batch, _: batch, {"images": images[0]})
    assert not keeps_targets(lambda batch, _: batch, images[0])


def in_place(batch: Batch, generator: torch.Generator) -> Batch:
    batch[0].add_(1)
    batch[1].add_(1)
    return batch


def test_an_augment_that_writes_into_its_batch_does_no_harm() -> None:
    batch = batch_of()
    found = draw_views(batch, in_place, torch.Generator(), 2)
    assert [float(view[0][0, 0]) for view in all_views(found)] == [1.0, 1.0]
    assert float(batch[0][0, 0]) == 0.0
    assert not keeps_targets(in_place, batch)
    assert int(batch[1][0]) == 0

"""Mixed samples lie between two of the batch, one in two, the same from the same seed."""

import pytest
import torch
from torch import Tensor

from brainsurgeon.samples.mixup import mixup


def batches(count: int = 4, size: int = 50) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(size, 3, generator=generator), torch.arange(size)) for _ in range(count)]


def test_every_sample_is_one_of_the_batch_or_between_two() -> None:
    whole = total = 0
    for (x, y), (mixed, targets) in zip(batches(), mixup(batches(), 1), strict=True):
        assert targets is not x
        assert torch.equal(targets, y)
        assert mixed.shape == x.shape
        for row, own in zip(mixed, x, strict=True):
            # row = λ·own + (1 − λ)·other: with some other of the batch, all three numbers give the same λ in [0, 1].
            shares = (row - x) / (own - x)
            fits = (shares - shares.mean(1, keepdim=True)).abs().amax(1) < 1e-3
            fits &= (shares.mean(1) > -1e-3) & (shares.mean(1) < 1 + 1e-3)
            assert bool(fits.any())
        whole += int((mixed == x).all(1).sum())
        total += len(x)
    assert 0.4 * total < whole < 0.6 * total


def test_the_same_seed_gives_the_same_samples() -> None:
    first, again, other = (torch.cat([x for x, _ in mixup(batches(), seed)]) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_inputs_in_several_parts_are_mixed_alike() -> None:
    x, y = batches(1)[0]
    (((mixed, doubled), _),) = mixup([((x, 2 * x), y)], 3)
    assert torch.allclose(doubled, 2 * mixed)
    ((named, _),) = mixup([({"a": x}, y)], 3)
    assert torch.equal(named["a"], mixed)


@pytest.mark.parametrize("inputs", [torch.arange(12).view(6, 2), (torch.ones(6, 2), torch.arange(6))])
def test_tokens_stay_as_they_are(inputs: object) -> None:
    ((found, _),) = mixup([(inputs, torch.arange(6))], 0)
    assert found is inputs


def test_the_precision_of_the_inputs_is_kept() -> None:
    x, y = batches(1)[0]
    ((mixed, _),) = mixup([(x.bfloat16(), y)], 0)
    assert mixed.dtype == torch.bfloat16

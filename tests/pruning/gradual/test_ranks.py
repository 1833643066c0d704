"""Training on two ranks against one, one rank against no group, and ranks that do not keep up."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from launching import alone, check_both, check_close, launch
from ranks import saved_form
from safetensors.torch import load_file
from torch import Tensor, nn
from training_ranks import APART, WAYS, normalised, pruned_in

from brainsurgeon.network.statistics import train_statistics
from brainsurgeon.network.weights import find_weights
from brainsurgeon.pruning.gradual import ranks
from brainsurgeon.pruning.gradual.ranks import Shares, send_round, statistics
from brainsurgeon.pruning.gradual.student import Student

PROGRAM = Path(__file__).parents[2] / "helpers" / "training_ranks.py"
IN_TIME = {"in time", "gradual in time", "no time"}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks left."""
    folder = tmp_path_factory.mktemp("training-ranks")
    assert launch(PROGRAM, folder) == [0, 3]  # the second dies at the end
    return folder


@pytest.mark.parametrize("way", [way for way in WAYS | APART if way != "no time"])
def test_both_ranks_hold_the_same_model_and_statistics_bit_for_bit(two: Path, way: str) -> None:
    check_both(*(load_file(two / f"{way}.{rank}") for rank in (0, 1)))


@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_equal_one_within_rounding(two: Path, way: str) -> None:
    check_close(load_file(two / f"{way}.0"), saved_form(pruned_in(way)), by_layer=False)


def test_within_a_limit_both_ranks_have_the_exact_count(two: Path) -> None:
    for way in IN_TIME - {"no time"}:
        masks = [mask for name, mask in load_file(two / f"{way}.1").items() if name.startswith("mask/")]
        assert sum(int(mask.sum()) for mask in masks) == 648
    assert [(two / f"no time.{rank}").read_text() for rank in (0, 1)] == ["648", "648"]


@pytest.mark.parametrize("way", ["a rate is found", "norms", "auto"])
def test_one_rank_equals_no_group_bit_for_bit(way: str) -> None:
    expected = pruned_in(way)
    with alone():
        assert dist.is_initialized()
        found = pruned_in(way)
    pairs = zip(found.model.state_dict().values(), expected.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert all(torch.equal(found.masks[name], mask) for name, mask in expected.masks.items())
    assert (found.loss_after, found.notes) == (expected.loss_after, expected.notes)


def test_what_one_rank_found_by_itself_goes_to_all(two: Path) -> None:
    first, second = (load_file(two / f"found.{rank}") for rank in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(first["weight"], normalised()[1].weight + 1)  # type: ignore[index]
    assert first["numbers"].tolist() == [0.25, 7]
    assert int(first["mask"].sum()) == 138


def test_ranks_with_other_samples_are_refused_at_once(two: Path) -> None:
    for method in ("gradual", "auto"):
        for rank in (0, 1):
            assert "different samples" in (two / f"refused-{method}.{rank}").read_text()


def test_a_rank_that_dies_in_a_try_of_a_rate_is_told_of(two: Path) -> None:
    """It is not taken for a rate that diverges."""
    told = (two / "died").read_text()
    assert re.match(r"the ranks could not (add up|send round) .*another rank stopped", told, re.DOTALL), told


class Ranks:
    """Ranks one after the other in one process: what each gives to be added up is kept."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch):
        self.count, self.given = count, [list[Tensor]() for _ in range(count)]
        self.own = 0
        monkeypatch.setattr(ranks, "world_size", lambda: count)
        monkeypatch.setattr(
            ranks, "shard", lambda size: range(self.own * size // count, (self.own + 1) * size // count)
        )
        monkeypatch.setattr(ranks, "sum_over_ranks", self._keep)

    def _keep(self, tensor: Tensor) -> Tensor:
        self.given[self.own].append(tensor.clone())
        return tensor

    def sums(self) -> list[Tensor]:
        return [torch.stack(each).sum(0) for each in zip(*self.given, strict=True)]


@pytest.mark.parametrize(("size", "least"), [(7, 1), (7, 2), (2, 1), (8, 2), (3, 2)])
def test_parts_make_up_the_batch_or_are_all_of_it(size: int, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part has at least so many samples; the weights add up to 1."""
    at = Ranks(3, monkeypatch)
    parts, weights = list[Tensor](), list[float]()
    for at.own in range(3):
        shares = Shares(least)
        parts.append(shares.part(torch.arange(size)))
        weights.append(shares.weight)
    assert sum(weights) == pytest.approx(1)
    if size < 3 * least:
        assert all(len(part) == size for part in parts)
    else:
        assert torch.equal(torch.cat(parts), torch.arange(size))
        assert min(map(len, parts)) >= least
        assert weights == [len(part) / size for part in parts]


@pytest.mark.parametrize("sent", [1 << 24, 20])
def test_gradients_losses_and_statistics_are_those_of_the_batch(sent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of parts of 2, 2 and 3 samples; the statistics are the mean of the parts'. One parameter has no gradient."""
    monkeypatch.setattr(ranks, "SENT", sent)
    at = Ranks(3, monkeypatch)
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(7, 3, generator=generator), torch.randn(7, 2, generator=generator)
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    dense.unused, dense.norm = nn.Linear(2, 2), nn.BatchNorm1d(3)
    whole = nn.functional.mse_loss(dense[1](dense[0](inputs)), targets)
    wanted = torch.autograd.grad(whole, [*dense[0].parameters(), *dense[1].parameters()])
    running = torch.stack([part.mean(0) for part in inputs.split([2, 2, 3])])
    for at.own in range(3):
        model = copy.deepcopy(dense)
        train_statistics(model)
        student, shares = Student(model, find_weights(model), all_parameters=True), Shares.of(model)
        assert shares.least == 2
        x, y = shares.part((inputs, targets))
        model.norm(x)
        loss = nn.functional.mse_loss(model[1](model[0](x)), y)
        loss.backward()
        student.take_gradients()
        shares.average(student, loss.detach())
        assert student.values["unused.weight"].grad is None
        torch.testing.assert_close(model.norm.running_mean, 0.1 * x.mean(0) * shares.weight)  # what was sent is taken
    small, *gradients = at.sums()
    assert len(gradients) == (1 if sent > 20 else 2)
    names = ["0.weight", "0.bias", "1.weight", "1.bias"]
    in_order = [names.index(name) for name in student.values if name in names]
    torch.testing.assert_close(torch.cat(gradients), torch.cat([wanted[k].reshape(-1) for k in in_order]))
    count = len(student.values)
    assert small[:count].tolist() == [3.0 if name in names else 0.0 for name in student.values]
    assert float(small[count]) == pytest.approx(float(whole.detach()))
    expected = 0.1 * (running * torch.tensor([[2.0], [2.0], [3.0]]) / 7).sum(0)
    torch.testing.assert_close(small[count + 1 : count + 4].float(), expected)


def test_alone_nothing_is_shared_out_or_sent() -> None:
    model, batch = normalised(), (torch.ones(3, 2), torch.ones(3))
    student = Student(model, find_weights(model), all_parameters=True)
    before = {name: tensor.clone() for name, tensor in student.state().items()}
    shares, loss = Shares(), torch.tensor(1.0)
    assert shares.part(batch) is batch
    assert shares.mean(loss) is loss
    assert shares.average(student, loss) is loss
    send_round(student)
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.state().items())


def test_statistics_are_of_what_is_in_training_mode_alone() -> None:
    model = normalised().eval()
    assert not list(statistics(model))
    train_statistics(model)
    assert [len(buffer) for buffer in statistics(model)] == [20, 20]

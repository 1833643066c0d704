"""Rows of gradients: those of a plain autograd loop, however they were taken."""

import logging
from typing import Any

import pytest
import torch
from cases import CASES, SAMPLES, Case, every_case, every_device
from torch import Tensor, nn

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.events import Event
from brainsurgeon.network import gradients as module
from brainsurgeon.network.gradients import Gradients, collect_gradients, mean_squares
from brainsurgeon.network.loss import BatchLoss
from brainsurgeon.network.weights import PrunableWeights, find_weights
from brainsurgeon.samples.batches import batch_size, map_tensors

FALLBACK = "gradients are taken one by one"


def prepare(case: Case, device: str = "cpu") -> tuple[BatchLoss, PrunableWeights, Any]:
    model = case.model().to(device).eval()
    data = map_tensors(lambda tensor: tensor.to(device), case.data())
    return BatchLoss(model, case.loss), find_weights(model), data


def cut(data: Any, start: int, stop: int) -> Any:
    return map_tensors(lambda tensor: tensor[start:stop], data)


def plain_row(batch_loss: BatchLoss, weights: PrunableWeights, batch: Any) -> Tensor:
    """One row by loss.backward()."""
    batch_loss.zero_grad()
    batch_loss(batch).backward()
    parameters = [batch_loss.model.get_parameter(name) for name in weights.names]
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]).double()


def collect(case: Case, rows: int, group: int = 1, **settings: Any) -> Gradients:
    batch_loss, weights, data = prepare(case)
    return collect_gradients(batch_loss, weights, [data], rows, group, **settings)


@every_device
@every_case
def test_rows_are_those_of_a_plain_loop(case: Case, device: str) -> None:
    batch_loss, weights, data = prepare(case, device)
    found = collect_gradients(batch_loss, weights, [data], 7)
    expected = torch.stack([plain_row(batch_loss, weights, cut(data, k, k + 1)) for k in range(7)], 1)
    assert found.columns.shape == (weights.size, 7)
    torch.testing.assert_close(found.columns.double(), expected, rtol=case.tolerance, atol=case.tolerance / 10)
    assert expected.abs().sum() > 0


@every_case
def test_a_row_over_several_samples_is_the_gradient_of_their_mean_loss(case: Case) -> None:
    batch_loss, weights, data = prepare(case)
    found = collect_gradients(batch_loss, weights, [cut(data, 0, 10), cut(data, 10, 40)], 5, 4)
    expected = torch.stack([plain_row(batch_loss, weights, cut(data, 4 * k, 4 * k + 4)) for k in range(5)], 1)
    torch.testing.assert_close(found.columns.double(), expected, rtol=case.tolerance, atol=case.tolerance / 10)


@every_case
def test_only_what_cannot_be_batched_is_taken_one_by_one(case: Case) -> None:
    notes = collect(case, 3).notes
    assert [FALLBACK in note for note in notes] == ([] if case.batched else [True])


def test_the_fallback_is_a_note_and_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        notes = collect(CASES["branching"], SAMPLES).notes
    assert len(notes) == 1
    assert not caplog.records


def test_batched_gradients_that_are_wrong_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(function: object, in_dims: object) -> Any:
        return lambda parameters, groups: {name: torch.ones(2, *p.shape) for name, p in parameters.items()}

    monkeypatch.setattr("brainsurgeon.network.rows.vmap", wrong)
    batch_loss, weights, data = prepare(CASES["linear"])
    found = collect_gradients(batch_loss, weights, [data], 2)
    assert "differ from single ones" in found.notes[0]
    torch.testing.assert_close(found.columns[:, 0].double(), plain_row(batch_loss, weights, cut(data, 0, 1)))


def test_many_chunks_give_the_rows_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = collect(CASES["linear"], 20, 2)
    monkeypatch.setattr(module, "MOST_ROWS", 4)
    events: list[Event] = []
    parts = collect(CASES["linear"], 20, 2, notify=events.append)
    torch.testing.assert_close(parts.columns, whole.columns)
    assert [event.done for event in events] == [4, 8, 12, 16, 20]


def test_fresh_memory_is_written_to_piece_by_piece_with_a_look_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = collect(CASES["linear"], 20)
    looks: list[None] = []
    monkeypatch.setattr(module, "pulse", lambda: looks.append(None))
    collect(CASES["linear"], 20)
    few = len(looks)
    monkeypatch.setattr(module, "FRESH_BYTES", 20 * 4 * 7)  # seven weights
    looks.clear()
    parts = collect(CASES["linear"], 20)
    assert torch.equal(parts.columns, whole.columns)
    assert len(looks) >= max(few + 1, whole.columns.shape[0] // 7)


def test_fewer_rows_come_where_the_data_ends_early() -> None:
    """Three samples that do not fill a group of their own are left out."""
    assert collect(CASES["linear"], 1000, 37).rows == 1
    assert collect(CASES["linear"], 1000, 1).rows == SAMPLES


@pytest.mark.parametrize("count", [0, 3])
def test_too_little_data_for_one_row_is_an_error(count: int) -> None:
    batch_loss, weights, data = prepare(CASES["linear"])
    with pytest.raises(BrainsurgeonError, match="gave no gradient"):
        collect_gradients(batch_loss, weights, [cut(data, 0, count)] if count else [], 5, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_rows_are_stored_in_the_type_asked_for(dtype: torch.dtype) -> None:
    exact = collect(CASES["float64"], 6, dtype=torch.float64).columns
    stored = collect(CASES["float64"], 6, dtype=dtype).columns
    assert stored.dtype == dtype
    torch.testing.assert_close(stored, exact.to(dtype))


def test_a_gradient_that_is_not_finite_names_its_sample() -> None:
    batch_loss, weights, (inputs, labels) = prepare(CASES["linear"])
    inputs[11] = torch.nan
    with pytest.raises(BrainsurgeonError, match=r"loss is nan at sample 11 of .* 6 of its 6 numbers"):
        collect_gradients(batch_loss, weights, [(inputs, labels)], SAMPLES)


def test_weights_that_no_sample_reaches_have_zero_rows() -> None:
    """An embedding's unused entries, and a branch that was not taken."""
    batch_loss, weights, (tokens, labels) = prepare(CASES["embedding"])
    found = collect_gradients(batch_loss, weights, [(tokens.clamp(max=4), labels)], SAMPLES)
    rows = weights.unflatten(found.columns[:, :].abs().sum(1))["0.weight"]
    assert (rows[5:] == 0).all()
    assert (rows[:5] > 0).all()


@pytest.mark.parametrize("name", ["linear", "tied", "attention"])
def test_collecting_leaves_the_model_as_it_was(name: str) -> None:
    batch_loss, weights, data = prepare(CASES[name])
    before = {key: value.clone() for key, value in batch_loss.state_dict().items()}
    collect_gradients(batch_loss, weights, [data], 5)
    assert all(torch.equal(value, before[key]) for key, value in batch_loss.state_dict().items())
    assert all(parameter.grad is None for parameter in batch_loss.parameters())


@every_device
@every_case
@pytest.mark.parametrize("group", [1, 3])
def test_means_and_mean_squares_are_those_of_the_rows(case: Case, device: str, group: int) -> None:
    batch_loss, weights, data = prepare(case, device)
    mean, squares, rows, notes = mean_squares(batch_loss, weights, [data], 13, group)
    expected = collect_gradients(batch_loss, weights, [data], 13, group)
    assert rows == expected.rows == 13
    assert notes == expected.notes
    columns = expected.columns.double()
    tolerance = {"rtol": 10 * case.tolerance, "atol": 1e-6 if case.tolerance < 0.01 else 1e-3}
    assert mean.dtype == squares.dtype == torch.float64
    torch.testing.assert_close(mean, columns.mean(1), **tolerance)
    torch.testing.assert_close(squares, columns.square().mean(1), **tolerance)


def test_mean_squares_store_no_rows_and_stop_where_the_data_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 4)
    batch_loss, weights, data = prepare(CASES["linear"])
    seen: list[Event] = []
    chunks = module.gradient_rows(batch_loss, weights, [data], 1000, 3, seen.append, [])
    shapes = [{value.shape[0] for value in rows.values()} for rows in chunks]
    assert shapes == [{4}, {4}, {4}, {1}]  # 40 samples are 13 groups of 3
    assert [event.done for event in seen] == [4, 8, 12, 13]
    assert mean_squares(batch_loss, weights, [data], 1000, 3)[2] == 13


def test_squares_of_half_precision_do_not_vanish() -> None:
    """A gradient of 1e-5 is a number in float16, and its square is not."""
    model = torch.nn.Linear(4, 3, bias=False).half()
    batch = (torch.full((8, 4), 1e-5).half(), torch.zeros(8, dtype=torch.long))
    batch_loss, weights = BatchLoss(model, "cross_entropy"), find_weights(model)
    _, squares, _, _ = mean_squares(batch_loss, weights, [batch], 8)
    expected = collect_gradients(batch_loss, weights, [batch], 8).columns.double().square().mean(1)
    assert bool((expected > 0).all())
    torch.testing.assert_close(squares, expected, rtol=0.01, atol=0)


def test_mean_squares_name_the_sample_whose_gradient_is_not_finite() -> None:
    batch_loss, weights, (x, y) = prepare(CASES["linear"])
    with pytest.raises(BrainsurgeonError, match="loss is nan at sample 0 of"):
        mean_squares(batch_loss, weights, [(x.fill_(torch.inf), y)], 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_mean_of_the_rows_is_taken_in_no_less_than_float32(dtype: torch.dtype) -> None:
    columns = (1 + torch.randn(5, 300, generator=torch.Generator().manual_seed(0)).double() / 100).to(dtype)
    found = Gradients(columns).mean()
    assert found.dtype == torch.float64
    exact = 1e-14 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(found, columns.double().mean(1), rtol=exact, atol=0)


@pytest.mark.parametrize("room", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("group", [1, 2])
def test_where_memory_is_short_rows_are_taken_by_halves(room: int, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that holds so many rows at a time gives the same rows, in order."""
    expected = collect(CASES["linear"], SAMPLES // group, group).columns
    sizes: list[int] = []

    def short_of_memory(*arguments: Any) -> Any:
        rows, notes = choose(*arguments)

        def limited(parameters: Any, groups: Any) -> Any:
            sizes.append(batch_size(groups))
            if sizes[-1] > room:
                raise torch.cuda.OutOfMemoryError("out of memory")
            return rows(parameters, groups)

        return limited, notes

    choose = module.choose_rows
    monkeypatch.setattr(module, "choose_rows", short_of_memory)
    found = collect(CASES["linear"], SAMPLES // group, group).columns
    torch.testing.assert_close(found, expected)
    assert sum(size for size in sizes if size <= room) == SAMPLES // group
    assert (max(sizes) > room) == (room < SAMPLES // group)


@pytest.mark.parametrize("group", [1, 2])
def test_rows_whose_passes_are_large_are_taken_a_few_at_a_time(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their weights are: the outputs of layers decide too."""
    expected = collect(CASES["linear"], SAMPLES // group, group).columns
    batch_loss, _, (x, y) = prepare(CASES["linear"])
    kept, sizes = module.kept_by(batch_loss, (x[:group], y[:group])), list[int]()
    taken = module._in_halves
    monkeypatch.setattr(module, "PASS_BYTES", {"cpu": 2 * module.PASSED * kept})
    monkeypatch.setattr(module, "_in_halves", lambda *given: sizes.append(batch_size(given[2])) or taken(*given))
    found = collect(CASES["linear"], SAMPLES // group, group).columns
    torch.testing.assert_close(found, expected)
    assert max(sizes) == 2
    assert sum(sizes) == SAMPLES // group


def test_a_row_that_does_not_fit_alone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(parameters: Any, groups: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setattr(module, "choose_rows", lambda *arguments: (never, ()))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        collect(CASES["linear"], SAMPLES)


def test_a_batch_may_be_a_single_tensor() -> None:
    """Tokens, or inputs alone, with a loss of the model and the batch."""
    model = nn.Linear(4, 2)
    batch_loss = BatchLoss(model.eval(), lambda model, batch: model(batch).square().mean())
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    found = collect_gradients(batch_loss, find_weights(model), [inputs[:4], inputs[4:]], 6)
    for number, sample in enumerate(inputs):
        model.zero_grad()
        batch_loss(sample.unsqueeze(0)).backward()
        assert model.weight.grad is not None
        assert torch.allclose(found.columns[:, number], model.weight.grad.reshape(-1), atol=1e-6)

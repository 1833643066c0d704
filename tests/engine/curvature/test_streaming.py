"""Products with a matrix that is read in pieces against dense ones."""

import numpy as np
import pytest
import torch
from fishers import assert_close, build, every_dtype

from brainsurgeon.engine.curvature import streaming


def test_sums_in_pieces_are_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the pieces in which the stored gradients are read, the results are the same."""
    toy, fisher, H = build((5, 12), torch.bfloat16)
    monkeypatch.setattr(streaming, "PIECE", 7)
    monkeypatch.setattr(streaming.pieces, "__defaults__", (None, 7, None))
    assert len(list(streaming.pieces(fisher.columns))) == 12
    assert_close(fisher.product(torch.from_numpy(toy.w)), H @ toy.w, torch.bfloat16)
    assert_close(fisher.diagonal(), np.diag(H), torch.bfloat16)
    assert_close(fisher.inverse_diagonal(), np.diag(np.linalg.inv(H)), torch.bfloat16)


@every_dtype
def test_pieces_that_are_copied_share_one_buffer(dtype: torch.dtype) -> None:
    """The heap must not grow by a matrix while one is read."""
    columns, kept = torch.arange(40).reshape(10, 4).to(dtype), torch.tensor([9, 0, 3, 4, 8])
    seen = [(rows.data_ptr(), rows.double().clone()) for _, rows in streaming.pieces(columns, kept, 8)]
    assert len(seen) == 3
    assert len({place for place, _ in seen}) == 1
    assert torch.equal(torch.cat([rows for _, rows in seen]), columns[kept].double())


@every_dtype
def test_symmetric_products_fill_the_lower_triangle_panel_by_panel(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Panels narrower than the matrix, of all rows and of some; what was added can be taken away."""
    monkeypatch.setattr(streaming, "PANEL", 3)
    columns = torch.randn(11, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    twin, kept = columns.double(), torch.tensor([10, 0, 4, 5, 7])
    for rows in (None, kept):
        chosen = twin if rows is None else twin[rows]
        outer, inner = streaming.outer(columns, rows), streaming.inner(columns, rows)
        torch.testing.assert_close(outer.tril(), (chosen.T @ chosen).tril(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(inner.tril(), (chosen @ chosen.T).tril(), rtol=1e-5, atol=1e-5)
    total = streaming.outer(columns)
    streaming.add_outer(total, columns, kept, sign=-1)
    others = twin[[1, 2, 3, 6, 8, 9]]
    torch.testing.assert_close(total.tril(), (others.T @ others).tril(), rtol=1e-5, atol=1e-5)


@every_dtype
def test_combinations_and_projections_are_dense_products(dtype: torch.dtype) -> None:
    """Of many weights, of one weight alone, and of several vectors at once."""
    generator = torch.Generator().manual_seed(1)
    columns = torch.randn(20, 6, generator=generator).to(dtype)
    twin, xs = columns.double(), torch.randn(20, 3, generator=generator, dtype=torch.float64)
    one = torch.zeros(20, dtype=torch.float64)
    one[13] = -2.0
    for x in (xs[:, 0], one):
        torch.testing.assert_close(streaming.combine(columns, x), twin.T @ x, rtol=1e-5, atol=1e-5)
    kept = torch.tensor([2, 19, 3])
    torch.testing.assert_close(streaming.combine_many(columns, xs), twin.T @ xs, rtol=1e-5, atol=1e-5)
    some = streaming.combine_many(columns, xs[:3], kept)
    torch.testing.assert_close(some, twin[kept].T @ xs[:3], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(streaming.project(columns, xs[:6, 0]), twin @ xs[:6, 0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(streaming.squares(columns), twin.square().sum(1), rtol=1e-5, atol=1e-5)


def test_half_precision_is_widened_and_wider_numbers_are_left_alone() -> None:
    types = {torch.bfloat16: torch.float32, torch.float16: torch.float32}
    for given in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        assert streaming.widen(torch.ones(1, dtype=given)).dtype == types.get(given, given)


def test_of_a_few_weights_only_their_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than one in eight; with more, all are read in order."""
    read = list[int]()

    def noted(columns: torch.Tensor, kept: torch.Tensor | None = None, **_: object) -> object:
        read.append(len(columns) if kept is None else len(kept))
        return iter(())

    monkeypatch.setattr(streaming, "pieces", noted)
    columns, x = torch.ones(32, 4, dtype=torch.bfloat16), torch.zeros(32, dtype=torch.float64)
    for count in (1, 3, 4, 32):
        x[:count] = 1.0
        streaming.combine(columns, x)
    assert read == [1, 3, 32, 32]

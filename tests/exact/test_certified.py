"""What an exact method gives back, in numbers and words."""

import math
from dataclasses import replace

import pytest
import torch

from brainsurgeon.exact.certified import Certified, relative_gap

FOUND = Certified(
    torch.tensor([True, False, True]), torch.zeros(3), 2.0, 1.5, "time limit", "cbs", "joint", 1.25, nodes=7
)


def test_a_gap_is_a_share_of_the_objective_and_never_negative() -> None:
    assert FOUND.gap == 0.25
    assert relative_gap(-2.0, -3.0) == 0.5
    assert relative_gap(1.0, 1.0) == relative_gap(1.0, 1.1) == 0.0
    assert relative_gap(0.0, -1e-9) > 1
    assert relative_gap(1.0, -math.inf) == math.inf


@pytest.mark.parametrize(
    ("status", "bound", "words"),
    [("time limit", 1.5, "stopped by time limit, gap 25.00%"), ("optimal", 2.0, "proven optimal")],
)
def test_the_summary_counts_and_says_what_is_proven(status: str, bound: float, words: str) -> None:
    text = replace(FOUND, status=status, lower_bound=bound).summary()
    assert text.startswith("cbs: 2 of 3 weights pruned, joint cost 2 (lower bound")
    assert words in text
    assert "1.25 s" in text

"""Cases pruned by magnitude, to be trained again."""

from __future__ import annotations

from cases import Case

import brainsurgeon


def pruned(case: Case, sparsity: float = 0.6) -> brainsurgeon.PruningResult:
    return brainsurgeon.prune(case.model(), case.data(), sparsity, "mp", case.loss, progress=False)

"""The solvers of the extra are imported where they are needed, and named where they are missing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from instances import SOLVERS, make

from brainsurgeon import BrainsurgeonError
from brainsurgeon.exact import solve


@pytest.mark.parametrize("formulation", list(SOLVERS))
def test_a_missing_solver_is_named_with_its_extra(formulation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, SOLVERS[formulation], None)
    with pytest.raises(BrainsurgeonError, match=r"brainsurgeon\[exact\]"):
        solve(make(0, 6, 4), 3, formulation)


@pytest.mark.parametrize("module", ["pyscipopt", "highspy"])
def test_the_solvers_are_imported_only_where_they_are_used(module: str) -> None:
    code = f"import sys, brainsurgeon.exact; assert {module!r} not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

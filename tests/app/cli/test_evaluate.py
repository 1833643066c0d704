"""`brainsurgeon evaluate`: scores and worth of a pruned model."""

import json
import shutil
from pathlib import Path

from commands import Run


def test_evaluate_tells_scores_and_worth(saved: Path, run: Run, tmp_path: Path) -> None:
    told = run("evaluate", saved, "-t", "demo", "--seconds", 0.01, "--json", tmp_path / "worth.json")
    for words in ("accuracy", "32,360, 1,618 of them not zero", "multiply-adds", "torch-csr", "times the speed"):
        assert words in told
    record = json.loads((tmp_path / "worth.json").read_text())
    assert record["nonzero"] == 1618
    assert record["multiply_adds_sparse"] == 1618


def test_what_is_kept_stays_beside_the_model_with_what_was_known(saved: Path, run: Run, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "m")
    told = run("evaluate", tmp_path / "m", "-t", "demo", "--seconds", 0, "--runtime", "torch", "--keep")
    path = tmp_path / "m" / "measured.json"
    assert f"kept in {path}" in told
    first = json.loads(path.read_text())
    assert first["cost"]["nonzero"] == 1618
    path.write_text(json.dumps({"scores": {"own": 3.0}, "histograms": []}))
    run("evaluate", tmp_path / "m", "-t", "demo", "--seconds", 0, "--runtime", "torch", "--keep")
    again = json.loads(path.read_text())
    assert again["scores"] == {"own": 3.0}  # what a run measured is not replaced
    assert again["histograms"] == []
    assert again["cost"]["nonzero"] == 1618

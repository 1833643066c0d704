"""Records carry the commit of the code that made them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from experiments import records
from experiments.cells import stamp


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("one = 1\n")
    (tmp_path / "experiments" / "results").mkdir(parents=True)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_the_commit_is_told_and_changes_of_the_code_with_a_plus(clone: Path) -> None:
    head = git(clone, "rev-parse", "--short", "HEAD")
    assert records.commit_of(clone) == head
    (clone / "experiments" / "results" / "new.jsonl").write_text("{}\n")
    assert records.commit_of(clone) == head  # a record is no change of the code
    (clone / "code.py").write_text("one = 2\n")
    assert records.commit_of(clone) == head + "+"


def test_outside_a_clone_there_is_no_commit(tmp_path: Path) -> None:
    assert records.commit_of(tmp_path) is None


def test_every_way_of_writing_a_record_adds_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "COMMIT", "abc1234+")
    records.write(tmp_path / "new" / "one.json", {"accuracy": 1.0})
    records.append(tmp_path / "lines.jsonl", {"accuracy": 1.0})
    records.append(tmp_path / "lines.jsonl", {"accuracy": 2.0})
    assert records.read(tmp_path / "new" / "one.json") == {"accuracy": 1.0, "commit": "abc1234+"}
    assert [line["commit"] for line in records.read_lines(tmp_path / "lines.jsonl")] == ["abc1234+"] * 2


def test_only_the_new_lines_of_a_file_of_cells_are_stamped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "COMMIT", "abc1234")
    path = tmp_path / "mlpnet-seed0.jsonl"
    path.write_text("".join(json.dumps({"cell": number}) + "\n" for number in range(3)))
    stamp(path, 2)
    assert records.read_lines(path) == [{"cell": 0}, {"cell": 1}, {"cell": 2, "commit": "abc1234"}]


def test_a_run_is_done_if_a_line_has_all_its_values(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert not records.is_done(path, {"seed": 0})
    records.append(path, {"seed": 0, "sparsity": 0.9, "accuracy": 93.0})
    assert records.is_done(path, {"seed": 0, "sparsity": 0.9})
    assert not records.is_done(path, {"seed": 1, "sparsity": 0.9})


PAGES = {
    "README.md": "mlpnet-seed* resnet20-seed* budgets-*",
    "docs/results.md": "*-seed* timed/*-seed*",
    "docs/choosing.md": "mlpnet-seed* resnet20-seed*",
    "docs/errata.md": "*-seed*",
    "docs/beyond.md": "beyond-*",
    "docs/algorithm.md": "labels*",
    "docs/exact.md": "exact-*",
    "docs/finetune.md": "finetune-* benchmarks/freeze*",
    "docs/searches.md": "benchmarks/searches*",
    "docs/worth.md": "benchmarks/worth*",
    "docs/performance.md": "benchmarks/engine* benchmarks/gpu-h200* benchmarks/bfloat16*",
    "docs/auto.md": "budgets-* hurried* side-vit* benchmarks/again*",
    "docs/layerwise.md": "language-* side-resnet50* forecasts*",
    "docs/goals.md": "goals*",
    "docs/structured.md": "structured*",
    "docs/faq.md": "promises* memory* kills*",
}
"""The records that each page shows."""


def lines_of(path: Path) -> list[dict[str, object]]:
    return records.read_lines(path) if path.suffix == ".jsonl" else [records.read(path)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_so_where_its_figures_are_of_older_code(page: str) -> None:
    """Records without a commit are; a page whose records all have one must not say it any more."""
    shown = [path for pattern in PAGES[page].split() for path in sorted(records.RESULTS.glob(f"{pattern}.json*"))]
    assert shown
    old = [path.name for path in shown if not all(line.get("commit") for line in lines_of(path))]
    text = " ".join((records.ROOT / page).read_text().split())
    assert ("from before commits were recorded" in text) == bool(old), old

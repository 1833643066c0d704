"""The README's test command is what CI runs; its code blocks are run by test_docs.py."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SCRIPT = (ROOT / ".ci" / "run").read_text()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = "pip install -q -c constraints.txt -e '.[dev]'"
    assert command in README
    assert command in SCRIPT.replace("pip install --quiet --disable-pip-version-check", "pip install -q")
    assert "&& .venv/bin/pytest -n 2\n" in README
    assert "pytest -n 2" in SCRIPT.splitlines()


def test_ci_runs_the_checks_that_contributors_are_told_of() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text()
    for check in ("ruff format --check .", "ruff check .", "mypy", ".ci/slow-sample 2 180"):
        assert check in SCRIPT.splitlines()
        assert check in told
    assert "run: .ci/run" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()

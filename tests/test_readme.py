"""The README's test command is what CI runs; its code blocks are run by test_docs.py."""

from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (Path(__file__).parent.parent / ".ci" / "run").read_text()
    command = "pip install -q -c constraints.txt -e '.[dev]'"
    assert command in README
    assert command in script.replace("pip install --quiet --disable-pip-version-check", "pip install -q")
    assert script.rstrip().endswith("pytest")

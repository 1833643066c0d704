"""Every code block of the README and the documentation runs; the measured tables are those of the recorded runs.

Python blocks of a page run in order and share their names; one with a title is written as a file of that name. Shell
blocks must parse, `brainsurgeon` lines must be valid commands, and those of a block after `<!-- run -->` are run.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import typer.main

import brainsurgeon
from brainsurgeon.app.cli import app, main
from brainsurgeon.pruning.auto.method import EFFORTS
from experiments import write_results, write_tables

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
BLOCK = re.compile(r"(<!-- run -->\n)?^```(python|sh|bash|shell|console)([^\n]*)\n(.*?)^```", re.S | re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it is to be, whether its commands are run, and its text."""

    language: str
    title: str | None
    run: bool
    text: str


def blocks_of(page: Path) -> list[Block]:
    found = []
    for run, language, options, text in BLOCK.findall(page.read_text()):
        title = re.search(r'title="([^"]+)"', options)
        found.append(Block(language, title[1] if title else None, bool(run), text))
    return found


def readers_names() -> dict[str, object]:
    """What a reader is taken to have already: the package imported, a `model`, its `inputs` and `targets`."""
    generator = torch.Generator().manual_seed(0)
    return {
        "brainsurgeon": brainsurgeon,
        "model": torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)),
        "inputs": torch.randn(200, 8, generator=generator),
        "targets": torch.randint(3, (200,), generator=generator),
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EFFORTS, "standard", 2000)  # the same calls, and a hundredth of the training
    names = readers_names()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks_of(page):
            if block.language != "python":
                check_shell(block)
            elif block.title:
                (tmp_path / block.title).write_text(block.text)
            else:
                exec(compile(block.text, f"{page.name}", "exec"), names)


def check_shell(block: Block) -> None:
    text = block.text
    if block.language == "console":  # a transcript: what follows a prompt was typed, the rest was the answer
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
    parsed = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert parsed.returncode == 0, parsed.stderr
    for line in text.replace("\\\n", " ").splitlines():
        for words in commands_in(line):
            if words[:1] == ["brainsurgeon"]:
                if block.run:
                    assert main(words[1:]) == 0, line
                else:
                    assert_valid(words[1:])


def commands_in(line: str) -> list[list[str]]:
    """Return the words of each command of a line: `first; second && third > file`."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set(";&|<>()"):
            found.append([])
        else:
            found[-1].append(word)
    return found


def assert_valid(arguments: list[str]) -> None:
    """Parse a command as `brainsurgeon` would, and stop there."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *arguments = [argument for argument in arguments if argument != "--debug"]
        command = command.commands[name]
    with command.make_context("brainsurgeon", list(arguments)):
        pass


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_lines_of_prose_are_short(page: Path) -> None:
    """Tables, pictures and what a command printed cannot be wrapped."""
    text = re.sub(r"^```console.*?^```", "", page.read_text(), flags=re.S | re.M)
    found = [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "!["))]
    assert not found


def test_an_invalid_command_would_be_found() -> None:
    with pytest.raises(Exception, match=r"(?i)no such option"):
        assert_valid(["prune", "demo", "--nonsense"])


def test_there_are_blocks_to_run() -> None:
    assert sum(len(blocks_of(page)) for page in PAGES) > 20
    assert sum(block.run for page in PAGES for block in blocks_of(page)) >= 4


def test_the_measured_tables_are_those_of_the_recorded_runs() -> None:
    for page, text in write_tables.write().items():
        assert page.read_text() == text, f"{page.name} is out of date: python -m experiments.write_tables"


def test_the_page_of_results_is_that_of_the_recorded_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs brainsurgeon[plots]")
    text = (ROOT / "docs" / "results.md").read_text()
    assert text == write_results.page(tmp_path), "results.md is out of date: python -m experiments.write_results"


def test_a_table_that_differs_from_its_record_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(write_tables.TABLES, "choosing", lambda: "| other |")
    pages = write_tables.write()
    assert [page.name for page, text in pages.items() if page.read_text() != text] == ["choosing.md"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebooks_run(path: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs brainsurgeon[docs]")
    pytest.importorskip("ipykernel", reason="needs brainsurgeon[docs]")
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["kernelspec"] = kernel
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()

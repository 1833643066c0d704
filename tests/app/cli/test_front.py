"""The help of the command as a whole: all that there is to call, and little to import for it."""

import subprocess
import sys

import pytest
from typer.main import get_command

from brainsurgeon.app.cli import app, main


def words(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_every_command_and_option_is_told_with_what_it_does(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(arguments)
    told = capsys.readouterr()
    found = words(told.out + told.err)
    group = get_command(app)
    assert found.startswith("Usage: brainsurgeon [OPTIONS] COMMAND [ARGS]...")
    assert words(group.help) in found
    assert words(group.epilog) in found
    assert len(group.commands) == 14
    for name, command in group.commands.items():
        assert f"{name} {words(command.help.split(chr(10) * 2)[0])}" in found
    for option in group.params:
        assert f"{', '.join(option.opts)} {option.help}" in found
    assert "Examples" not in found  # which the help of a command has


def test_help_imports_little() -> None:
    """Modules are counted, not seconds: Markdown and tracebacks alone, which no help shows, are a hundred."""
    program = (
        "import sys; from brainsurgeon.app.cli import main\nmain(['--help'])\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = [name for name in done.stderr.split() if name.split(".")[0] not in sys.stdlib_module_names]
    packages = {name.split(".")[0] for name in modules}
    assert not packages & {"torch", "numpy", "pydantic", "yaml", "safetensors", "markdown_it", "pygments"}
    assert "typer.rich_utils" not in modules
    assert 50 < len(modules) < 130, sorted(modules)

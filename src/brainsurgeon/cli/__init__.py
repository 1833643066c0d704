"""The command line. One file per command; the only part of the package that prints.

Nothing here imports PyTorch before a command runs, so that ``--help`` answers at once.
"""

import sys
import traceback
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from brainsurgeon._version import __version__
from brainsurgeon.cli import data, demo, reproduce, train

app = typer.Typer(
    name="brainsurgeon",
    help="Prune neural networks so that the removals cancel one another.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# A new command is one file and one line here.
app.add_typer(data.app, name="data")
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("reproduce")(reproduce.reproduce)

# Errors that are the user's to mend, told in one line; anything else is ours and keeps its traceback.
_EXPECTED = (ValueError, OSError, ModuleNotFoundError)
_FAILED, _INTERRUPTED = 1, 130


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"brainsurgeon {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit status: 0 done, 1 failed, 2 misused, 130 interrupted."""
    given = sys.argv[1:] if arguments is None else arguments
    arguments = [argument for argument in given if argument != "--debug"]  # may stand anywhere
    errors = Console(stderr=True)
    try:
        app(args=arguments, prog_name="brainsurgeon", standalone_mode=True)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except KeyboardInterrupt:
        errors.print("Interrupted.")
        return _INTERRUPTED
    except _EXPECTED as error:
        if len(arguments) < len(given):
            traceback.print_exc()
        else:
            errors.print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return _FAILED
    return 0

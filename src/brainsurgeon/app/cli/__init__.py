"""The command line. One file per command; the only part of the package that prints.

Nothing here imports PyTorch before a command runs, so that `--help` answers at once.

Exit statuses: 0 done; 1 failed, for a reason that is the user's to mend; 2 misused; 3 does not fit into memory or onto
the disk; 70 a bug of ours; 130 interrupted.
"""

import sys
import traceback
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from brainsurgeon._version import __version__
from brainsurgeon.app.cli import (
    compare,
    data,
    demo,
    doctor,
    evaluate,
    export,
    finetune,
    inspect,
    prune,
    report,
    reproduce,
    shrink,
    sweep,
    train,
)
from brainsurgeon.app.cli.front import Front

app = typer.Typer(
    name="brainsurgeon",
    cls=Front,
    help="Prune neural networks so that the removals cancel one another.",
    epilog="Exit status: 0 done, 1 failed, 2 misused, 3 does not fit into memory or onto the disk, 70 a bug, "
    "130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

# A new command is one file and one line here.
app.command("prune")(prune.prune)
app.command("compare")(compare.compare)
app.command("sweep")(sweep.sweep)
app.command("shrink")(shrink.shrink)
app.command("inspect")(inspect.inspect)
app.command("report")(report.report)
app.command("evaluate")(evaluate.evaluate)
app.command("finetune")(finetune.finetune)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.add_typer(data.app, name="data")
app.command("train")(train.train)
app.command("reproduce")(reproduce.reproduce)

# Errors that are the user's to mend, told in one line; anything else is ours.
_EXPECTED = (ValueError, OSError, ModuleNotFoundError)
_FAILED, _DOES_NOT_FIT, _BUG, _INTERRUPTED = 1, 3, 70, 130


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
    """Run the command line and give its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    arguments = [argument for argument in given if argument != "--debug"]  # may stand anywhere
    try:
        app(args=arguments, prog_name="brainsurgeon", standalone_mode=True)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except KeyboardInterrupt:
        Console(stderr=True).print("Interrupted.")
        return _INTERRUPTED
    except Exception as error:
        return _explain(error, traced=len(arguments) < len(given))
    return 0


def _explain(error: Exception, traced: bool) -> int:
    """Tell of an error in one line, or with its traceback, and give the exit status."""
    errors = Console(stderr=True)
    if traced:
        traceback.print_exc()
    elif isinstance(error, _EXPECTED):
        errors.print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    else:
        said = escape(f"{type(error).__name__}: {error}")
        errors.print(f"[bold red]Bug:[/] {said} (run again with --debug for the traceback)", soft_wrap=True)
    if not isinstance(error, _EXPECTED):
        return _BUG
    return _DOES_NOT_FIT if type(error).__name__ == "DoesNotFitError" else _FAILED

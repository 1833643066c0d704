"""What a reader sees of a table or figure: text from recorded cells, pictures beside it."""

from __future__ import annotations

from pathlib import Path

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.paper.reproduce import figures as draw
from brainsurgeon.paper.reproduce.cells import read_cells
from brainsurgeon.paper.reproduce.tables import ABLATION, heading, table

NETWORKS = {
    "table1": ["mlpnet"],
    "table2": ["resnet20"],
    "table3": ["cifarnet"],
    "table4": ["mobilenet-0.75"],
    "table5": ["mobilenet-0.75"],
    "figure3": ["mlpnet", "cifarnet", "resnet20"],
    "figure4": ["mlpnet", "cifarnet"],
    "figure5": ["mlpnet", "cifarnet"],
    "runtime": ["cifarnet"],
}
"""The networks that each table or figure is about."""

IN_CLONE = Path("experiments/results")
PACKAGED = Path(__file__).parents[1] / "recorded"
"""Where a wheel holds the recorded cells."""

TIMED = "timed"
"""The folder, beside all cells, of those that were recorded again for their times: all methods in the same way."""


def recorded_folder() -> Path:
    """Return the folder of recorded cells: of the clone one stands in, of the wheel, or of the clone in use."""
    places = [IN_CLONE, PACKAGED, Path(__file__).parents[4] / IN_CLONE]
    return next((place for place in places if any(place.glob("*-seed*.jsonl"))), IN_CLONE)


def show(what: str, networks: list[str], results: Path, folder: Path) -> str:
    """Return the table as Markdown; draw the figure and return where it is."""
    cells = {network: read_cells(results, network) for network in networks}
    if empty := [network for network, own in cells.items() if not own]:
        raise BrainsurgeonError(f"nothing is recorded for {empty[0]} in {results}: run `brainsurgeon reproduce {what}`")
    if what.startswith("table"):
        own = cells[networks[0]]
        columns = {"columns": ABLATION} if what == "table5" else {}
        return f"**{what}** — {heading(networks[0], own)}\n\n{table(own, networks[0], **columns)}"
    path = folder / f"{what}.svg"
    if what == "figure3":
        cells = {network: read_cells(results / TIMED, network) or own for network, own in cells.items()}
    if what == "runtime":
        draw.break_down(cells[networks[0]], path)
    else:
        {"figure3": draw.run_time, "figure4": draw.gains, "figure5": draw.curves}[what](cells, path)
    return f"**{what}** is in {path}"

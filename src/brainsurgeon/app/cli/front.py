"""The help of the command as a whole, drawn by ourselves.

Typer's own help imports what shows Markdown and tracebacks, with a parser and all lexers: a quarter of the time that
`brainsurgeon --help` takes. The help of one command is typer's.
"""

from typing import Any

from rich.box import ROUNDED
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup


class Front(TyperGroup):
    """The group of all commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print how to call it, its options and its commands, each with the first lines of its help."""
        console = Console(highlight=False)
        asked: list[Any] = self.get_params(ctx)
        options = [(", ".join(one.opts), one.help or "") for one in asked if not one.hidden]
        commands = [(name, self.commands[name].help or "") for name in self.list_commands(ctx)]
        console.print(Padding(Text(self.get_usage(ctx).strip(), style="bold"), 1))
        console.print(Padding(Text(self.help or ""), (0, 1, 1, 1)))
        console.print(_panel("Options", options))
        console.print(_panel("Commands", commands))
        console.print(Padding(Text(self.epilog or ""), 1))


def _panel(title: str, rows: list[tuple[str, str]]) -> Panel:
    """Return names beside the first paragraph of what is said about them, in a box."""
    table = Table(box=None, show_header=False, pad_edge=False, expand=True)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(ratio=1)
    for name, said in rows:
        table.add_row(name, Text.from_markup(" ".join(said.split("\n\n")[0].split()), emoji=False))
    return Panel(table, ROUNDED, title=title, title_align="left", border_style="dim")

"""Print the longest chain of imports in the package, and the longest way through its rooms.

    python -m experiments.imports

Only imports at the top of a file count: those inside functions run when they are needed.
"""

import argparse
import ast
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from experiments.records import ROOT

SOURCE = ROOT / "src"
Graph = Mapping[str, frozenset[str]]


def modules(source: Path) -> dict[str, ast.Module]:
    """Return the package's modules by name."""
    found = {}
    for path in sorted((source / "brainsurgeon").rglob("*.py")):
        name = ".".join(path.relative_to(source).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


def imports_of(trees: Mapping[str, ast.Module]) -> Graph:
    """Return what each module imports of the others."""
    found = {}
    for name, tree in trees.items():
        own = set()
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module in trees:
                whole = str(node.module)
                names = (f"{whole}.{alias.name}" for alias in node.names)
                own |= {full if full in trees else whole for full in names}
            elif isinstance(node, ast.Import):
                own |= {alias.name for alias in node.names if alias.name in trees}
        found[name] = frozenset(own - {name, "brainsurgeon"})
    return found


def longest_chain(graph: Graph) -> tuple[str, ...]:
    """Return the longest chain of a graph without cycles."""

    @cache
    def from_here(name: str) -> tuple[str, ...]:
        return (name, *max((from_here(other) for other in sorted(graph[name])), key=len, default=()))

    return max((from_here(name) for name in sorted(graph)), key=len)


def rooms_of(graph: Graph) -> Graph:
    """Return the graph of the rooms: the packages and modules right below the root."""
    found: dict[str, set[str]] = {}
    for name, others in graph.items():
        own = found.setdefault(_room(name), set())
        own |= {_room(other) for other in others} - {_room(name)}
    return {name: frozenset(others) for name, others in found.items()}


def _room(name: str) -> str:
    return name.split(".")[1] if "." in name else name


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(
        arguments
    )
    graph = imports_of(modules(SOURCE))
    for title, chain in (("modules", longest_chain(graph)), ("rooms", longest_chain(rooms_of(graph)))):
        print(f"{len(chain)} {title}: " + " → ".join(name.removeprefix("brainsurgeon.") for name in chain))


if __name__ == "__main__":
    main()

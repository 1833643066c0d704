"""The longest chain of imports, on graphs that can be seen through."""

from __future__ import annotations

import ast
import itertools

from experiments.imports import imports_of, longest_chain, modules, rooms_of
from experiments.records import ROOT


def test_the_longest_chain_is_found_among_shorter_ones() -> None:
    graph = {"a": {"b", "c"}, "b": {"d"}, "c": {"b"}, "d": set(), "e": {"d"}}
    assert longest_chain({name: frozenset(others) for name, others in graph.items()}) == ("a", "c", "b", "d")


def test_imports_are_read_from_source_and_gathered_by_room() -> None:
    trees = {
        "brainsurgeon.app": ast.parse("from brainsurgeon.engine import mask\nimport os"),
        "brainsurgeon.engine": ast.parse("def later():\n    import brainsurgeon.app"),
        "brainsurgeon.engine.mask": ast.parse("from brainsurgeon.errors import BrainsurgeonError"),
        "brainsurgeon.errors": ast.parse(""),
    }
    graph = imports_of(trees)
    assert graph["brainsurgeon.app"] == {"brainsurgeon.engine.mask"}
    assert graph["brainsurgeon.engine"] == frozenset()
    assert rooms_of(graph) == {"app": {"engine"}, "engine": {"errors"}, "errors": frozenset()}


def test_the_package_has_a_longest_chain_and_so_no_cycle() -> None:
    graph = imports_of(modules(ROOT / "src"))
    chain = longest_chain(graph)
    assert len(chain) > 5
    assert all(later in graph[name] for name, later in itertools.pairwise(chain))

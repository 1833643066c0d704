"""Who may touch what: the dependency rules of the package, read from its own source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import brainsurgeon

ROOT = Path(brainsurgeon.__file__).parent
FILES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
ROOMS = (
    "_version",
    "errors",
    "events",
    "distributed",
    "samples",
    "network",
    "engine",
    "exact",
    "files",
    "export",
    "cost",
    "pruning",
    "training",
    "structured",
    "paper",
    "app",
    "__init__",
    "__main__",
)
"""A room imports only from rooms before it. `__init__` is the front door: it names what lies behind it."""
TENSORS_ONLY = ("engine", "exact")
SEES_MODULES = ("network", "pruning", "training", "files", "export", "cost", "structured", "paper", "app")
OUTSIDE = (
    "argparse",
    "typer",
    "rich",
    "json",
    "pathlib",
    "os",
    "io",
    "pickle",
    "shutil",
    "sys",
    "logging",
    "safetensors",
)
RANDOM = {
    "rand",
    "randn",
    "randint",
    "randperm",
    "rand_like",
    "randn_like",
    "randint_like",
    "normal",
    "bernoulli",
    "multinomial",
    "poisson",
}
IN_PLACE_RANDOM = {"normal_", "uniform_", "bernoulli_", "random_", "exponential_"}
UNTESTED = {"__init__.py", "__main__.py", "_version.py", "errors.py"}
"""Files by these names hold nothing to test by itself."""
every_file = pytest.mark.parametrize("name", FILES)


def room(name: str) -> str:
    """The room of a file, or of a module of ours."""
    return name.removeprefix("brainsurgeon.").replace(".", "/").split("/")[0].removesuffix(".py")


def imports(tree: ast.AST) -> set[str]:
    """Every module that a file imports, wherever the import stands; names count as `module.name` too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def ours(tree: ast.AST) -> set[str]:
    return {m for m in imports(tree) if m.startswith("brainsurgeon.") and room(m) in ROOMS}


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(dotted(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def later_rooms(name: str, tree: ast.AST) -> set[str]:
    """What a file imports of rooms that come after its own."""
    if room(name) == "__init__":
        return set()
    own = ROOMS.index(room(name))
    return {module for module in ours(tree) if ROOMS.index(room(module)) > own}


def test_every_file_is_in_a_room_and_few_stand_at_the_root() -> None:
    assert {room(name) for name in FILES} <= set(ROOMS)
    assert len([name for name in FILES if "/" not in name]) <= 6


def mirrored(name: str) -> Path:
    """Where the tests of a file lie."""
    path = Path(name)
    return Path(__file__).parent / path.parent / f"test_{path.name}"


def test_the_page_on_architecture_lists_the_rooms_in_their_order() -> None:
    page = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text()
    listed = [name for row in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"`(\w+)`", row)]
    assert listed == [room for room in ROOMS if not room.startswith("_")]


def test_every_file_has_its_tests_in_the_same_place() -> None:
    """`src/brainsurgeon/a/b.py` is tested by `tests/a/test_b.py`, which holds tests."""
    wanted = {name: mirrored(name) for name in FILES if Path(name).name not in UNTESTED}
    missing = [name for name, tests in wanted.items() if not tests.is_file()]
    assert not missing, "give each of these a test file of its own"
    assert not [name for name, tests in wanted.items() if "def test_" not in tests.read_text()]


@every_file
def test_a_room_imports_only_from_rooms_before_it(name: str) -> None:
    assert not later_rooms(name, FILES[name])


@every_file
def test_the_algebra_sees_tensors_and_callables_only(name: str) -> None:
    """No module, no loader, no file and no terminal inside the algebra, the searches and the updates."""
    if room(name) not in TENSORS_ONLY:
        return
    found = imports(FILES[name])
    assert not {m for m in found if m.startswith(("torch.nn", "torch.utils", "torch.func"))}
    assert not {m for m in found if m.split(".")[0] in OUTSIDE}
    assert {room(m) for m in ours(FILES[name])} <= {"errors", "events", *TENSORS_ONLY}
    assert not {function for function, _ in calls(FILES[name])} & {"print", "open"}


@every_file
def test_selections_and_updates_do_not_know_one_another(name: str) -> None:
    parts = {"selection": "engine.update", "update": "engine.selection", "curvature": "engine.selection"}
    folder = name.split("/")[1] if name.startswith("engine/") else ""
    assert not {m for m in ours(FILES[name]) if m.startswith(f"brainsurgeon.{parts.get(folder, 'nothing')}")}


@every_file
def test_modules_are_touched_in_their_rooms_alone(name: str) -> None:
    if room(name) not in SEES_MODULES:
        found = {m for m in imports(FILES[name]) if not m.startswith("torch.nn.functional")}  # functions of tensors
        assert not {m for m in found if m.startswith(("torch.nn", "torch.func"))}


@every_file
def test_one_file_imports_torch_distributed(name: str) -> None:
    found = {m for m in imports(FILES[name]) if m.startswith("torch.distributed")}
    assert not found or name == "distributed.py"


@every_file
def test_randomness_comes_from_a_generator_that_was_handed_over(name: str) -> None:
    """No global seed is set (but for a user's own function), and no number is drawn from a global generator."""
    seeds = {"torch.manual_seed", "torch.seed", "torch.cuda.manual_seed", "random.seed"}
    for function, call in calls(FILES[name]):
        if name == "app/target.py" and function in seeds:
            continue
        keywords = {keyword.arg for keyword in call.keywords}
        assert function not in seeds, function
        parts = function.split(".")
        if parts[0] == "torch" and parts[-1] in RANDOM and len(parts) == 2:
            assert "generator" in keywords, f"{name}: {function} without a generator"
        if parts[-1] in IN_PLACE_RANDOM:
            assert "generator" in keywords, f"{name}: {function} without a generator"
        if function.startswith(("np.random.", "numpy.random.")):
            assert parts[-1] in {"default_rng", "Generator", "SeedSequence"}, f"{name}: {function}"
            assert call.args or call.keywords, f"{name}: {function} without a seed"
        assert parts[0] != "random" or len(parts) == 1, f"{name}: {function} draws from the global generator"


@every_file
def test_only_the_command_line_prints(name: str) -> None:
    if not name.startswith("app/cli/"):
        assert "print" not in {function for function, _ in calls(FILES[name])}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("engine/curvature/fisher.py", "from brainsurgeon.network.weights import find_weights"),
        ("network/weights.py", "def later():\n    from brainsurgeon.app.recipe import Recipe"),
        ("pruning/prune.py", "from brainsurgeon import app"),
        ("errors.py", "import brainsurgeon.events"),
    ],
)
def test_the_rule_of_rooms_can_fail(name: str, line: str) -> None:
    tree = ast.parse(line)
    breach = later_rooms(name, tree) or {room(m) for m in ours(tree)} & {"network"}
    assert breach


def test_the_library_works_without_the_packages_of_the_tool() -> None:
    """A whole run needs torch, numpy and safetensors, and nothing that only the command needs."""
    program = """
import sys
for name in ("pydantic", "yaml", "typer", "click", "rich", "matplotlib", "PIL", "jinja2"):
    sys.modules[name] = None
import torch, brainsurgeon
model = torch.nn.Linear(6, 3)
data = (torch.randn(40, 6), torch.randint(3, (40,)))
result = brainsurgeon.prune(model, data, 0.5, "cbs", num_gradients=20, loss_samples=20, num_draws=4)
assert result.pruned == 9
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

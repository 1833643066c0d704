"""Who may touch what: the dependency rules of the package, read from its own source."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import brainsurgeon

ROOT = Path(brainsurgeon.__file__).parent
FILES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))
}
ENGINE = [
    name
    for name in FILES
    if name.split("/")[0] in {"curvature", "selection", "update", "exact"}
    or name in {"quadratic.py", "problem.py", "mask.py"}
]
OUTSIDE = {
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
}
SEES_MODELS = {"batches", "weights", "loss", "gradients", "sample_loss", "prune", "surgery", "result", "checkpoint",
               "target", "scores", "zeros", "freeze", "finetune", "tuning", "gradual", "inputs", "outcome",
               "recalibrate", "labels", "prediction"}  # fmt: skip
TOUCH_A_MODULE = {f"{name}.py" for name in SEES_MODELS - {"batches"}}
USERS = {"models", "data", "cli", "reproduce", "report", "train.py", "evaluate.py", "files", "export", "worth"}
RANDOM = {
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
    "multinomial", "poisson",
}  # fmt: skip
IN_PLACE_RANDOM = {"normal_", "uniform_", "bernoulli_", "random_", "exponential_"}


def imports(tree: ast.AST, name: str) -> set[str]:
    """Every module that a file imports, in full; names imported from a module count as `module.name` too."""
    package = ["brainsurgeon", *name.split("/")[:-1]]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(dotted(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def keywords(call: ast.Call) -> set[str | None]:
    return {keyword.arg for keyword in call.keywords}


def test_the_source_was_found() -> None:
    assert {"prune.py", "curvature/fisher.py", "selection/local_search.py", "update/joint.py"} <= FILES.keys()
    assert "brainsurgeon.events" in imports(FILES["selection/randomized.py"], "selection/randomized.py")


@pytest.mark.parametrize("name", ENGINE)
def test_the_engine_sees_tensors_and_callables_only(name: str) -> None:
    """No module, no loader, no file and no terminal inside the algebra, the searches and the updates."""
    found = imports(FILES[name], name)
    assert not {module for module in found if module.startswith(("torch.nn", "torch.utils", "torch.func"))}
    assert not {module for module in found if module.split(".")[0] in OUTSIDE}
    assert not found & {f"brainsurgeon.{module}" for module in SEES_MODELS}
    assert not {name for name, _ in calls(FILES[name])} & {"print", "open"}


@pytest.mark.parametrize("name", FILES)
def test_selections_and_updates_do_not_know_one_another(name: str) -> None:
    other = {"selection": "brainsurgeon.update", "update": "brainsurgeon.selection"}.get(name.split("/")[0])
    found = imports(FILES[name], name)
    if other is not None:
        assert not {module for module in found if module.startswith(other)}
    elif name.split("/")[0] in {"curvature", "quadratic.py", "mask.py", "problem.py"}:
        assert not {m for m in found if m.startswith(("brainsurgeon.selection", "brainsurgeon.update"))}


@pytest.mark.parametrize("name", ENGINE)
def test_the_engine_depends_inwards_only(name: str) -> None:
    """Nothing in it imports the wiring: prune, methods, result, command line, networks or data."""
    outer = ("prune", "surgery", "methods", "result", "progress", "cli", "models", "data", "train", "memory", "blocks")
    assert not {
        m for m in imports(FILES[name], name) if m.startswith(tuple(f"brainsurgeon.{o}" for o in outer))
    }


@pytest.mark.parametrize("name", FILES)
def test_only_a_few_files_touch_a_module(name: str) -> None:
    if name not in TOUCH_A_MODULE and name.split("/")[0] not in USERS:
        assert not {m for m in imports(FILES[name], name) if m.startswith(("torch.nn", "torch.func"))}


@pytest.mark.parametrize("name", FILES)
def test_randomness_comes_from_a_generator_that_was_handed_over(name: str) -> None:
    """No global seed is set (but for a user's own function), and no number is drawn from a global generator."""
    seeds = {"torch.manual_seed", "torch.seed", "torch.cuda.manual_seed", "random.seed"}
    for function, call in calls(FILES[name]):
        if name == "target.py" and function in seeds:
            continue
        assert function not in seeds, function
        parts = function.split(".")
        if parts[0] == "torch" and parts[-1] in RANDOM and len(parts) == 2:
            assert "generator" in keywords(call), f"{name}: {function} without a generator"
        if parts[-1] in IN_PLACE_RANDOM:
            assert "generator" in keywords(call), f"{name}: {function} without a generator"
        if function.startswith(("np.random.", "numpy.random.")):
            assert parts[-1] in {"default_rng", "Generator", "SeedSequence"}, f"{name}: {function}"
            assert call.args or call.keywords, f"{name}: {function} without a seed"
        assert parts[0] != "random" or len(parts) == 1, f"{name}: {function} draws from the global generator"


@pytest.mark.parametrize("name", FILES)
def test_only_the_command_line_prints(name: str) -> None:
    if name.split("/")[0] != "cli" and name != "__main__.py":
        assert "print" not in {function for function, _ in calls(FILES[name])}


@pytest.mark.parametrize("name", ["curvature/fisher.py", "selection/wide_search.py"])
def test_the_reader_of_imports_would_see_a_breach(name: str) -> None:
    """The rules above can fail: a line that breaks them is found."""
    tree = ast.parse("from torch import nn\nfrom ..update import Joint\nfrom ..weights import find_weights")
    assert {"torch.nn", "brainsurgeon.update", "brainsurgeon.weights"} <= imports(tree, name)


TOOL = ("cli", "runs", "report", "recipe", "trackers", "inspection", "estimate", "target", "scores")
"""What the command is made of: the library under it does not know it."""


@pytest.mark.parametrize("name", FILES)
def test_the_library_does_not_know_the_tool(name: str) -> None:
    found = imports(FILES[name], name)
    first = name.split("/")[0].removesuffix(".py")
    if first not in {*TOOL, "__main__"}:
        assert not {m for m in found if m.startswith(tuple(f"brainsurgeon.{part}" for part in TOOL))}
    elif first not in {"cli", "__main__"}:
        assert not {m for m in found if m.startswith("brainsurgeon.cli")}


def test_the_library_works_without_the_packages_of_the_tool() -> None:
    """A whole run needs torch, numpy and safetensors, and nothing that only the command needs."""
    program = """
import sys
for name in ("pydantic", "yaml", "typer", "click", "rich", "matplotlib", "PIL"):
    sys.modules[name] = None
import torch, brainsurgeon
model = torch.nn.Linear(6, 3)
data = (torch.randn(40, 6), torch.randint(3, (40,)))
result = brainsurgeon.prune(model, data, 0.5, num_gradients=20, loss_samples=20, num_draws=4)
assert result.pruned == 9
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

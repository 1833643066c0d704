"""The options that several commands share, and how they and a recipe file become one recipe."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from brainsurgeon.app.recipe import Recipe

MODEL, METHOD, GOAL, EXAMINATION, RUN = "Model", "Method", "Goal", "Examination", "Run"

TargetArgument = Annotated[
    str | None,
    typer.Argument(
        help="Your model: file.py:function or module:function, which returns (model, data), (model, data, loss), "
        "(model, data, loss, test), or a dict with these names. `demo` stands for the network in the package.",
        metavar="TARGET",
        show_default=False,
    ),
]
RecipeOption = Annotated[
    Path | None,
    typer.Option(
        "--recipe",
        "-r",
        help="A YAML or TOML file with everything; options given here come first.",
        metavar="FILE",
        rich_help_panel=MODEL,
    ),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        help="Weights to load into the model (safetensors, or a torch file, read safely).",
        metavar="FILE",
        rich_help_panel=MODEL,
    ),
]
SparsityOption = Annotated[
    float | None,
    typer.Option(
        "--sparsity",
        "-s",
        help="The share of the weights to remove: exactly ⌈rN⌉ of them go.",
        show_default="0.9, or what a budget for every layer comes to",
        rich_help_panel=METHOD,
    ),
]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-m",
        help="auto (tries what may be best), layerwise, gradual, mp, wf, cbs, … (an unknown one lists them all).",
        show_default="auto",
        rich_help_panel=METHOD,
    ),
]
BudgetOption = Annotated[
    list[str] | None,
    typer.Option(
        help="global: wherever it costs least; uniform: the same share of each layer; a YAML or JSON file of layers "
        "and sparsities, as `inspect --sensitivity` writes it; or targets: 'conv1=0.5,fc*=0.95' (repeatable).",
        metavar="RULE",
        show_default="global",
        rich_help_panel=METHOD,
    ),
]
StagesOption = Annotated[
    int | None,
    typer.Option(
        "--stages",
        help="Prune in so many stages, and refit as often, with gradients taken again each time.",
        min=1,
        show_default="staged 15, others at once",
        rich_help_panel=METHOD,
    ),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Prune only these parameters or modules: names or glob patterns (repeatable).",
        metavar="PATTERN",
        rich_help_panel=MODEL,
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(help="Leave these alone (repeatable).", metavar="PATTERN", rich_help_panel=MODEL),
]
NumGradientsOption = Annotated[
    int | None,
    typer.Option(
        "--num-gradients",
        "-k",
        help="K, the rows of the curvature: more is better, and takes K·N numbers.",
        show_default="1000",
        rich_help_panel=EXAMINATION,
    ),
]
FisherOption = Annotated[
    str | None,
    typer.Option(
        help="The labels that gradients are taken at: empirical (the data's), sampled (drawn from what the "
        "model predicts) or exact (all, by their probabilities; K rows of C classes are K/C samples).",
        show_default="empirical",
        rich_help_panel=EXAMINATION,
    ),
]
BlocksOption = Annotated[
    str | None,
    typer.Option(
        help="model, layer, auto, or the largest size of a block.", show_default="auto", rich_help_panel=EXAMINATION
    ),
]
DampingOption = Annotated[
    float | None, typer.Option(help="λ, added to the curvature.", show_default="1e-4", rich_help_panel=EXAMINATION)
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        help="How gradients are stored: float32 or bfloat16 (half the memory).",
        show_default="float32",
        rich_help_panel=EXAMINATION,
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1, …", show_default="where the model is", rich_help_panel=EXAMINATION),
]
SeedOption = Annotated[
    int | None, typer.Option(help="Of all random draws.", show_default="0", rich_help_panel=EXAMINATION)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Any other key of a recipe, or a method's own setting: loss_samples=2000, num_draws=20 (repeatable).",
        metavar="KEY=VALUE",
        rich_help_panel=METHOD,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="The run's folder; it must be new or empty.",
        metavar="FOLDER",
        show_default="runs/TIME-…",
        rich_help_panel=RUN,
    ),
]
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        help="Go on with an interrupted run, to the very result it would have had.",
        metavar="FOLDER",
        rich_help_panel=RUN,
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option("--trust", help="Import what someone else's run folder names. Look at it first.", rich_help_panel=RUN),
]
TrackOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Also log to tensorboard, wandb or mlflow (repeatable; each is an extra).",
        metavar="NAME",
        rich_help_panel=RUN,
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No bars, no log lines.", rich_help_panel=RUN)]

TextOption = Annotated[
    Path | None,
    typer.Option(help="For hf:FOLDER, the text to calibrate on.", metavar="FILE", rich_help_panel=MODEL),
]
TestTextOption = Annotated[
    Path | None,
    typer.Option(help="For hf:FOLDER, the text to report perplexity on.", metavar="FILE", rich_help_panel=MODEL),
]
WindowOption = Annotated[
    int | None,
    typer.Option(help="For hf:FOLDER, tokens in a window.", min=2, show_default="1024", rich_help_panel=MODEL),
]
OnDiskOption = Annotated[
    bool,
    typer.Option(
        "--on-disk",
        help="For hf:FOLDER, leave the weights on disk, and bring them into memory block by block: for models larger "
        "than memory, with a layer-wise method.",
        rich_help_panel=MODEL,
    ),
]
PatternOption = Annotated[
    str | None,
    typer.Option(
        help="The masks allowed: unstructured, row, n:m such as 2:4, or blocks such as 4x4.",
        show_default="unstructured",
        rich_help_panel=METHOD,
    ),
]
EffortOption = Annotated[
    str | None,
    typer.Option(help="auto: quick, standard or thorough.", show_default="standard", rich_help_panel=METHOD),
]
SecondsOption = Annotated[
    float | None, typer.Option("--max-seconds", help="Seconds that a run may take.", rich_help_panel=METHOD)
]
MaxDropOption = Annotated[
    str | None,
    typer.Option(
        "--max-drop",
        help="In place of a sparsity: the sparsest network that loses at most so much of the metric on held-out "
        "training samples: 1%, 0.01.",
        metavar="SHARE",
        rich_help_panel=GOAL,
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        help="What a goal is measured by: accuracy, perplexity, r2, loss, ….",
        show_default="what the loss suggests",
        rich_help_panel=GOAL,
    ),
]
TargetBytesOption = Annotated[
    str | None,
    typer.Option(
        help="The largest network whose compressed file has at most so many bytes: 5MB, 300kB, 10%.",
        metavar="SIZE",
        rich_help_panel=GOAL,
    ),
]
TargetMacsOption = Annotated[
    str | None,
    typer.Option(
        help="The largest network with at most so many multiply-adds a sample that are not with a zero: 40M, 50%.",
        metavar="NUMBER",
        rich_help_panel=GOAL,
    ),
]
OF_GOAL = {"max_drop": "drop", "metric": "metric", "target_bytes": "target_bytes", "target_macs": "target_macs"}
"""Options that make a goal, and what they are called there."""
OF_TARGET = ("text", "test_text", "window", "on_disk")
"""Options that go to the function that makes the model."""
KEYS_OF_OPTIONS = {"stages": "schedule", "sparsities": "sparsity", "methods": "method"}
"""Where a command's parameter is not called what the recipe calls it."""


def keys_given(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what a command was given, its `locals()`, by the keys that it has in a recipe."""
    from brainsurgeon.app.recipe import KEYS

    named = {KEYS_OF_OPTIONS.get(name, name): value for name, value in parameters.items()}
    arguments = {key: str(v) if isinstance(v, Path) else v for key, v in named.items() if key in OF_TARGET and v}
    own = {key: value for key, value in named.items() if key in KEYS}
    if goal := {OF_GOAL[name]: value for name, value in parameters.items() if name in OF_GOAL and value is not None}:
        own["goal"] = goal
    return own | ({"arguments": arguments} if arguments else {})


def usual_sparsities(given: list[float] | None, budget: list[str] | None, usual: Sequence[float]) -> dict[str, Any]:
    """Return the sparsities that were given, or usual ones; none beside a budget that may name every layer's own."""
    own = any("=" in part or part.endswith((".yaml", ".yml")) for part in budget or [])
    return {} if own and not given else {"sparsity": given or list(usual)}


def gather_new(
    resume: Path | None, output: Path | None, recipe: Path | None, settings: list[str] | None, given: dict[str, Any]
) -> "Recipe | None":
    """Make the recipe of a new run; None for one that is resumed, which has its own and takes no other."""
    if resume is None:
        return gather(recipe, settings, given)
    others = {**given, "recipe": recipe, "set": settings, "output": output}
    if wrong := [key for key, value in others.items() if value not in (None, [], ())]:
        named = {"target": "the target", "schedule": "--stages", "goal": "the goal"}
        name = named.get(wrong[0], f"--{wrong[0].replace('_', '-')}")
        raise typer.BadParameter(f"a resumed run takes everything from its own recipe: leave out {name}")
    return None


def gather(recipe: Path | None, settings: list[str] | None, given: dict[str, Any]) -> "Recipe":
    """Make a recipe of a file, of options (those that were given), and of KEY=VALUE pairs."""
    from brainsurgeon.app.recipe import (
        KEYS,
        RecipeError,
        make_recipe,
        read_recipe,
        read_value,
        with_absolute_paths,
        with_absolute_texts,
    )

    values = read_recipe(recipe) if recipe is not None else {}
    given = {key: value for key, value in given.items() if value not in (None, [], ())}
    if "checkpoint" in given:
        given["checkpoint"] = str(given["checkpoint"])
    if isinstance(given.get("budget"), list | tuple):
        from brainsurgeon.app.budgets import read_budgets

        given["budget"] = read_budgets(given["budget"])
    if str(given.get("blocks", "")).isdigit():
        given["blocks"] = int(given["blocks"])
    arguments = {**dict(values.get("arguments") or {}), **with_absolute_texts(given.pop("arguments", {}), Path.cwd())}
    own: dict[str, Any] = {}
    for pair in settings or []:
        key, equals, text = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set takes KEY=VALUE, got {pair!r}")
        where = own if key not in KEYS else given
        where[key] = read_value(text)
    values.update(with_absolute_paths(given, Path.cwd()))
    if arguments:
        values["arguments"] = {**arguments, **dict(given.get("arguments") or {})}
    options = values.pop("options", None) or {}
    if not isinstance(options, dict):
        raise RecipeError(f"options holds a selection's own settings by name, got {options!r:.60}")
    if "target" not in values:
        raise typer.BadParameter("which model? Give file.py:function, or a recipe with a target (--recipe), or `demo`")
    return make_recipe({**values, "options": {**options, **own}}, str(recipe) if recipe else "options")

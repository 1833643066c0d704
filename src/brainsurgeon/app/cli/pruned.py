"""What `evaluate`, `export` and `finetune` share: a pruned model from the folder of a run, or one that was saved."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from brainsurgeon.app.recipe import Recipe
    from brainsurgeon.app.target import Target
    from brainsurgeon.files import Saved

FolderArgument = Annotated[
    Path, typer.Argument(help="The folder of a run, or one that `save` wrote.", metavar="FOLDER", show_default=False)
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="The function that made the model (file.py:function); a run's folder knows it.",
        metavar="TARGET",
    ),
]
CellOption = Annotated[
    str | None,
    typer.Option(help="Which outcome of a comparison, such as cbs@0.9.", metavar="METHOD@SPARSITY"),
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Import what someone else's run folder names. Look at it first.")
]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, …", show_default="where the model is")]


@dataclass(frozen=True)
class Pruned:
    """A pruned model, filled from its folder, with what the user's function brought along; `place` holds it."""

    target: "Target"
    saved: "Saved"
    place: Path
    recipe: str = ""

    def record(self) -> dict[str, Any]:
        """Return all that is known of it: the record of its pruning, its scores, and the recipe of its run."""
        from brainsurgeon.app.report.saved import Measured, read

        path = self.place / "measured.json"
        scores = read(Measured, path).scores if path.is_file() else {}
        more = {"scores": scores, "recipe": self.recipe}
        return {**(self.saved.record or {}), **{name: value for name, value in more.items() if value}}

    def example(self, count: int) -> Any:
        """Return the inputs of the first so many samples."""
        return example_of(self.target, count)


def example_of(target: "Target", count: int) -> Any:
    """Return the inputs of the first so many samples of a target."""
    import torch

    from brainsurgeon.samples.batches import SampleStream, concatenate

    device = next(target.model.parameters()).device
    stream = SampleStream(target.data, torch.Generator().manual_seed(0), device, keep=0)
    batch = concatenate(list(stream.take(count)))
    if isinstance(batch, dict):
        return {name: value for name, value in batch.items() if name not in ("labels", "label")}
    return batch[0] if isinstance(batch, list | tuple) and len(batch) == 2 else batch


def open_pruned(
    folder: Path, target: str | None, cell: str | None, device: str | None = None, trust: bool = False
) -> Pruned:
    """Load a pruned model; everything in its folder is checked first, and code that it names is not simply run."""
    from brainsurgeon.app.origin import ORIGIN, read_origin
    from brainsurgeon.app.runs import RunFolder
    from brainsurgeon.app.runs.folder import HUGGINGFACE
    from brainsurgeon.app.target import load_target
    from brainsurgeon.app.trust import check_trusted
    from brainsurgeon.errors import BrainsurgeonError
    from brainsurgeon.files import load
    from brainsurgeon.network.memory import check_device

    if (folder / "recipe.yaml").is_file():
        run = RunFolder.open(folder)
        recipe = run.recipe
        if target is None:
            check_trusted(folder, recipe.target, trust, "name the target yourself (--target), or ")
        made = _made(target or recipe.target, recipe.arguments, recipe.checkpoint, recipe.seed)
        place, text = _choose(run.cells(), cell, folder), (folder / "recipe.yaml").read_text()
        if (place / HUGGINGFACE).is_dir():
            return _pruned_on_disk(place, text, recipe, device)
    elif target is None and (folder / ORIGIN).is_file():
        spec, arguments, seed, checkpoint = read_origin(folder)
        check_trusted(folder, spec, trust, "name the target yourself (--target), or ", ORIGIN)
        made, place, text = _made(spec, arguments, checkpoint, seed), folder, ""
    elif target is None:
        raise BrainsurgeonError(
            f"{folder} is not the folder of a run and does not say what made its model: give --target file.py:function"
        )
    else:
        made, place, text = load_target(target), folder, ""
    saved = load(place, made.model)
    made.model.to(check_device(device or next(made.model.parameters()).device)).eval()
    return Pruned(made, saved, place, text)


def _made(spec: str, arguments: dict[str, Any] | None, checkpoint: str | None, seed: int) -> "Target":
    """Load a target, whose weights do not matter unless the loss is the distance from the dense model's outputs."""
    from brainsurgeon.app.target import load_target
    from brainsurgeon.network.match import Match

    made = load_target(spec, arguments, None, seed)
    if isinstance(made.loss, Match) and checkpoint is not None:
        return load_target(spec, arguments, checkpoint, seed)
    return made


def _pruned_on_disk(place: Path, text: str, recipe: "Recipe", device: str | None) -> Pruned:
    """Load a model that was pruned on disk, into memory."""
    from brainsurgeon.app.runs.folder import HUGGINGFACE
    from brainsurgeon.app.target import LANGUAGE, load_target
    from brainsurgeon.export.huggingface import MASKS
    from brainsurgeon.files import Saved, load_masks
    from brainsurgeon.files.sealed import parse_object
    from brainsurgeon.network.memory import check_device

    arguments = {**recipe.arguments, "on_disk": False}
    made = load_target(f"{LANGUAGE}{place / HUGGINGFACE}", arguments, None, recipe.seed)
    masks = load_masks(place / HUGGINGFACE / MASKS, made.model)
    saved = Saved(
        made.model.state_dict(), masks, parse_object((place / "result.json").read_bytes(), place / "result.json")
    )
    made.model.to(check_device(device or next(made.model.parameters()).device)).eval()
    return Pruned(made, saved, place, text)


def _choose(cells: list[Path], name: str | None, folder: Path) -> Path:
    """Return the only outcome of a run, or the one that was named."""
    from brainsurgeon.errors import BrainsurgeonError

    known = {cell.name: cell for cell in cells}
    if not known:
        raise BrainsurgeonError(f"{folder} has no finished outcome yet")
    if name is None and len(known) == 1:
        return cells[0]
    if name not in known:
        raise BrainsurgeonError(f"which outcome of {folder}? Give --cell with one of: {', '.join(known)}")
    return known[name]

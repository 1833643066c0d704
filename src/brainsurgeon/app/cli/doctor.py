"""`brainsurgeon doctor`: what this machine has, and what is missing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

EXTRAS = {  # package: (its extra of ours, what it is for)
    "matplotlib": ("plots", "figures of the paper; a report's pictures as PNG"),
    "pillow": ("data", "images of data sets"),
    "onnx": ("onnx", "export to ONNX"),
    "onnxruntime": ("onnx", "checking and timing ONNX"),
    "openvino": ("openvino", "timing sparse weights"),
    "tensorboard": ("tensorboard", "--track tensorboard"),
    "wandb": ("wandb", "--track wandb"),
    "mlflow-skinny": ("mlflow", "--track mlflow"),
    "transformers": ("", "your Hugging Face models"),
}
SOLVERS = {
    "highspy": ("exact", "HiGHS: pruning solved exactly, as a linear program of integers"),
    "pyscipopt": ("exact", "SCIP: pruning solved exactly"),
}
BASE = ("brainsurgeon", "torch", "numpy", "safetensors", "rich", "typer", "pydantic", "pyyaml")


def doctor() -> None:
    """Show versions, devices, memory, solvers and data: what is there, and what would have to be installed."""
    console = Console()
    for title, rows in (
        ("versions", _versions(BASE)),
        ("devices", _devices()),
        ("extras", _extras(EXTRAS)),
        ("exact solvers", _extras(SOLVERS)),
        ("data", _data()),
    ):
        table = Table(title=title, title_justify="left", show_header=False, min_width=60)
        for row in rows:
            table.add_row(*row)
        console.print(table)


def _version(package: str) -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _versions(packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    import platform

    yield "python", platform.python_version()
    for package in packages:
        yield package, _version(package) or "[red]missing[/]"


def _extras(wanted: dict[str, tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    for package, (extra, what) in wanted.items():
        source = f"brainsurgeon[{extra}]" if extra else package
        missing = f"[dim]pip install '{escape(source)}'[/]"
        yield package, _version(package) or missing, what


def _devices() -> Iterator[tuple[str, str]]:
    import torch

    from brainsurgeon.network.memory import GIB, available_bytes

    free = available_bytes(torch.device("cpu"))
    memory = "unknown" if free is None else f"{free / GIB:.1f} GiB free"
    yield "cpu", f"{torch.get_num_threads()} threads, {memory}"
    for number in range(torch.cuda.device_count()):
        free = available_bytes(torch.device("cuda", number))
        yield f"cuda:{number}", f"{torch.cuda.get_device_name(number)}, {(free or 0) / GIB:.1f} GiB free"
    if not torch.cuda.is_available():
        yield "cuda", "[dim]none[/]"
    yield "disk here", f"{shutil.disk_usage(Path.cwd()).free / GIB:.1f} GiB free"


def _data() -> Iterator[tuple[str, str]]:
    from brainsurgeon.paper.datasets.cache import DATASETS, cache_folder

    for name in DATASETS:
        folder = cache_folder() / name
        place = escape(str(folder))  # a path is no markup
        yield name, place if folder.is_dir() else f"[dim]not in {place}: brainsurgeon data fetch {name}[/]"

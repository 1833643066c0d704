"""`brainsurgeon evaluate`: how good a pruned model is, and what its sparsity buys."""

from pathlib import Path
from typing import Annotated

import typer

from brainsurgeon.app.cli import pruned as p

RUNTIMES = "torch, torch-csr, onnxruntime, openvino, openvino-sparse"


def evaluate(
    folder: p.FolderArgument,
    target: p.TargetOption = None,
    cell: p.CellOption = None,
    trust: p.TrustOption = False,
    runtime: Annotated[
        list[str] | None,
        typer.Option(help=f"What to time: {RUNTIMES} (repeatable).", show_default="torch, torch-csr"),
    ] = None,
    batch: Annotated[int, typer.Option(help="Samples in a batch.", min=1)] = 1,
    seconds: Annotated[float, typer.Option(help="How long to time each runtime.", min=0)] = 0.5,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write everything to this file.", metavar="FILE")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep it beside the model, where a report finds it.")] = False,
) -> None:
    """Tell the scores on held-out data, parameters, bytes on disk, multiply-adds and measured latency.

    Where a sparse runtime is no faster than a dense one, that is said.
    """
    import json

    from brainsurgeon.app.scores import measure
    from brainsurgeon.cost import worth
    from brainsurgeon.files.sealed import parse_object
    from brainsurgeon.files.writing import plain, write_whole

    opened = p.open_pruned(folder, target, cell, trust=trust)
    scores = measure(opened.target)
    found = worth(
        opened.target.model, opened.example(batch), opened.saved.masks, runtime or ("torch", "torch-csr"), seconds
    )
    for name, value in scores.items():
        print(f"{name:<13} {value:>14.4g}")
    if not scores:
        print("no scores: the target brings neither test data nor a score")
    print(found.summary())
    if json_file is not None:
        json_file.write_text(json.dumps({"scores": scores, **found.to_dict()}, indent=2) + "\n")
    if keep:
        path = opened.place / "measured.json"
        known = parse_object(path.read_bytes(), path) if path.is_file() else {}
        told = {"scores": scores, **known, "cost": found.to_dict()}
        write_whole(path, json.dumps(plain(told)))
        print(f"kept in {path}")

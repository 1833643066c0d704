"""`brainsurgeon export`: a pruned model in a form that others read."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from brainsurgeon.app.cli import pruned as p


class Form(StrEnum):
    """What to write."""

    dense = "dense"
    compressed = "compressed"
    masks = "masks"
    csr = "csr"
    onnx = "onnx"
    torch_prune = "torch-prune"
    huggingface = "huggingface"


def export(
    folder: p.FolderArgument,
    form: Annotated[Form, typer.Argument(help="What to write.", show_default=False)],
    output: Annotated[Path, typer.Argument(help="A new file, or for dense, compressed and huggingface a folder.")],
    target: p.TargetOption = None,
    cell: p.CellOption = None,
    trust: p.TrustOption = False,
    batch: Annotated[int, typer.Option(help="ONNX: samples in the example that is checked.", min=1)] = 2,
    dynamic: Annotated[
        bool, typer.Option("--dynamic/--fixed", help="ONNX: any number of samples, or that of --batch.")
    ] = True,
) -> None:
    """Write a pruned model as ONNX, CSR, masks, torch.nn.utils.prune, a Hugging Face folder, or our own files.

    dense, compressed: a folder with model, masks and record. masks: a bit a weight. csr: sparse rows. onnx: checked in
    onnxruntime. torch-prune: a state dict with weight_orig and weight_mask. huggingface: for from_pretrained,
    with a model card.
    """
    from brainsurgeon import export as forms
    from brainsurgeon.files import save, save_masks
    from brainsurgeon.files.checkpoint import save_checkpoint

    opened = p.open_pruned(folder, target, cell, trust=trust)
    model, saved = opened.target.model, opened.saved
    if form in (Form.masks, Form.csr, Form.onnx, Form.torch_prune) and output.exists():
        raise FileExistsError(f"{output} is there already: give a new file")
    if form in (Form.dense, Form.compressed):
        save(model, output, saved.masks, compressed=form == Form.compressed, record=saved.record)
    elif form == Form.masks:
        save_masks(saved.masks, output)
    elif form == Form.csr:
        forms.save_csr(forms.to_csr(model, saved.masks), output)
    elif form == Form.huggingface:
        forms.save_pretrained(model, output, saved.masks, opened.record())
    elif form == Form.torch_prune:
        save_checkpoint(forms.to_torch_prune(model, saved.masks), output)
    else:
        found = forms.to_onnx(model, opened.example(batch), output, dynamic_batch=dynamic)
        print(f"onnxruntime differs by {found.difference:.1g} of the largest output; {found.zeros:,} zeros in the file")
    files = [output] if output.is_file() else sorted(output.rglob("*"))
    print(f"{form.value}: {output}, {sum(file.stat().st_size for file in files if file.is_file()):,} bytes")

"""A pruned model in the forms that others read: ONNX, `torch.nn.utils.prune`, CSR, 2:4, a Hugging Face folder."""

from brainsurgeon.export.csr import load_csr, save_csr, to_csr, to_sparse_modules
from brainsurgeon.export.huggingface import save_pretrained
from brainsurgeon.export.onnx import OnnxExport, to_onnx
from brainsurgeon.export.semi_structured import to_semi_structured
from brainsurgeon.export.torch_prune import from_torch_prune, to_torch_prune

__all__ = [
    "OnnxExport",
    "from_torch_prune",
    "load_csr",
    "save_csr",
    "save_pretrained",
    "to_csr",
    "to_onnx",
    "to_semi_structured",
    "to_sparse_modules",
    "to_torch_prune",
]

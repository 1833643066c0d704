"""Files: safetensors and JSON, dense or compressed, sealed by a checksum, read without ever running what is in them."""

from brainsurgeon.files.folder import Saved, load, read, save
from brainsurgeon.files.masks import load_masks, save_masks
from brainsurgeon.files.sealed import FileError

__all__ = ["FileError", "Saved", "load", "load_masks", "read", "save", "save_masks"]

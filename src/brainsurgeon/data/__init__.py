"""The paper's data sets as plain tensors: fetched once, checked, loaded without torchvision."""

from brainsurgeon.data.cache import DATASETS, cache_folder, load
from brainsurgeon.data.fetch import fetch
from brainsurgeon.data.images import DataError, ImageData

__all__ = ["DATASETS", "DataError", "ImageData", "cache_folder", "fetch", "load"]

"""The paper's data sets as plain tensors: fetched once, checked, loaded without torchvision."""

from brainsurgeon.paper.datasets.cache import DATASETS, cache_folder, load
from brainsurgeon.paper.datasets.fetch import fetch
from brainsurgeon.paper.datasets.images import DataError, ImageData

__all__ = ["DATASETS", "DataError", "ImageData", "cache_folder", "fetch", "load"]

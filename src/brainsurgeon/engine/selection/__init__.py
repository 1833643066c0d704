"""Ways of choosing which weights go, one file each."""

from brainsurgeon.engine.selection.given import Given
from brainsurgeon.engine.selection.local_search import LocalSearch
from brainsurgeon.engine.selection.magnitude import Magnitude
from brainsurgeon.engine.selection.randomized import Randomized
from brainsurgeon.engine.selection.recentred_search import RecentredSearch
from brainsurgeon.engine.selection.wide_search import WideSearch
from brainsurgeon.engine.selection.woodfisher import WoodFisher

__all__ = [
    "Given",
    "LocalSearch",
    "Magnitude",
    "Randomized",
    "RecentredSearch",
    "WideSearch",
    "WoodFisher",
]
